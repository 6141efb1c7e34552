#include "data/corpus/corpus.h"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "core/check.h"
#include "core/files/hdf5_file.h"
#include "core/files/hdf5_trial.h"
#include "core/files/output_file.h"
#include "data/sources/word_counter.h"
#include "data/tokenizers/make_tokenizer.h"

namespace quire {

namespace {

// Calls use(id) for stored elements, which may be unaligned in the map.
template <typename Stored, typename Use>
void for_each_id(const std::byte* data, int64_t count, const Use& use) {
  for (int64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
    use(i, static_cast<int32_t>(value));
  }
}

template <typename Use>
void for_each_id(DType dtype, const std::byte* data, int64_t count, const Use& use) {
  if (dtype == DType::u8) return for_each_id<uint8_t>(data, count, use);
  if (dtype == DType::u16) return for_each_id<uint16_t>(data, count, use);
  return for_each_id<int32_t>(data, count, use);
}

[[noreturn]] void fail_split(const std::string& where, const std::string& what) {
  fail(ErrorKind::data, "{}: {}; run quire prepare again", where, what);
}

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

std::vector<int64_t> integers(const Hdf5Reader& reader, const std::string& dataset, const std::string& where) {
  const Tensor tensor = reader.get(dataset);
  if (tensor.dtype() != DType::i64 || tensor.rank() != 1) fail_split(where, dataset + " is not a list of integers");
  return tensor.to_vector<int64_t>();
}

// Refuses a folder or a text, which people name instead of the corpus to be made from it.
void require_corpus_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(ErrorKind::data, "{}: is a folder, not a corpus; make a corpus of it: quire prepare --input {} --output {}.h5",
         path.string(), path.string(), (path.has_filename() ? path : path.parent_path()).string());
  }
  if (std::filesystem::exists(manifest_path(path), ignored)) return;  // a later check finds damage
  File::open(path);  // throws for a file that is missing or cannot be read
  if (first_bytes(path, kHdf5Signature.size()) == kHdf5Signature) return;
  fail(ErrorKind::data,
       "{}: is not a corpus; quire prepare makes one of texts: quire prepare --input {} --output {}.h5", path.string(),
       path.string(), std::filesystem::path(path).replace_extension().string());
}

}  // namespace

int64_t Split::length(int64_t document) const {
  QUIRE_CHECK(document >= 0 && document < documents(), "split: document {} of {}", document, documents());
  const auto index = static_cast<size_t>(document);
  return offsets_[index + 1] - offsets_[index];
}

void Split::tokens(int64_t document, int64_t begin, int64_t count, int32_t* out) const {
  QUIRE_CHECK(begin >= 0 && count >= 0 && begin + count <= length(document), "split: tokens {}..{} of {}", begin,
              begin + count, length(document));
  const int64_t first = offsets_[static_cast<size_t>(document)] + begin;
  for_each_id(dtype_, data_ + first * static_cast<int64_t>(size_of(dtype_)), count,
              [out](int64_t i, int32_t id) { out[i] = id; });
  require_whole();
}

void Split::marks(int64_t document, int64_t begin, int64_t count, uint8_t* out) const {
  QUIRE_CHECK(begin >= 0 && count >= 0 && begin + count <= length(document) + 1, "split: targets {}..{} of {}", begin,
              begin + count, length(document) + 1);
  if (marks_ == nullptr) {
    std::fill_n(out, count, kCounted);
  } else {
    std::copy_n(marks_ + offsets_[static_cast<size_t>(document)] + document + begin, count, out);
    require_whole();
  }
}

void Split::require_whole() const {
  if (const int64_t bytes = file_->size(); bytes != file_bytes_) {
    fail(ErrorKind::data,
         "{}: has {} bytes now and had {} when it was opened; put the whole file back, and do not "
         "write over a file that is in use",
         file_->path().string(), bytes, file_bytes_);
  }
}

void Split::check_ids(int64_t vocabulary, const std::string& where) const {
  if (dtype_ == DType::u8 && vocabulary >= 256) return;  // no id can be wrong
  // The file is read, not mapped: a map would keep the whole split in the memory of this process.
  const auto width = static_cast<int64_t>(size_of(dtype_));
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(totals_.tokens, int64_t{1} << 18) * width));
  for (int64_t begin = 0; begin < totals_.tokens;) {
    const size_t read = file_->read_at(place_ + begin * width, buffer);
    const int64_t count = std::min(static_cast<int64_t>(read) / width, totals_.tokens - begin);
    if (count == 0) fail_split(where, "the tokens end early");
    for_each_id(dtype_, buffer.data(), count, [&](int64_t i, int32_t id) {
      if (id < 0 || id >= vocabulary) {
        fail_split(where, fmt::format("token {} is {}, beyond the vocabulary of {}", begin + i, id, vocabulary));
      }
    });
    begin += count;
  }
}

Split Split::load(const Hdf5Reader& reader, const std::string& group, const File& file,
                  std::span<const std::byte> mapped, const std::string& where) {
  Split split;
  split.file_ = &file;
  split.file_bytes_ = static_cast<int64_t>(mapped.size());
  split.offsets_ = integers(reader, group + "/offsets", where);
  split.bytes_ = integers(reader, group + "/bytes", where);
  split.words_ = integers(reader, group + "/words", where);
  split.names_ = reader.get_texts(group + "/names");
  const size_t documents = split.names_.size();
  if (documents == 0) fail_split(where, "there is no document in it");
  if (split.offsets_.size() != documents + 1 || split.bytes_.size() != documents || split.words_.size() != documents) {
    fail_split(where, "names, offsets and counts do not belong together");
  }
  // The longest document, such that sums of lengths fit 64 bits.
  constexpr int64_t kLongestDocument = int64_t{1} << 44;
  const auto is_count = [](int64_t count) { return count >= 0 && count <= kLongestDocument; };
  if (!std::all_of(split.bytes_.begin(), split.bytes_.end(), is_count) ||
      !std::all_of(split.words_.begin(), split.words_.end(), is_count)) {
    fail_split(where, "there are bytes or words of a document that are no count");
  }
  // Empty documents are never stored, so the offsets rise strictly.
  for (size_t i = 0; i < documents; ++i) {
    if (split.offsets_[i] >= split.offsets_[i + 1]) fail_split(where, "the document offsets do not rise");
  }
  const auto [dtype, shape] = reader.info(group + "/tokens");
  if (shape.rank() != 1 || (dtype != DType::u8 && dtype != DType::u16 && dtype != DType::i32)) {
    fail_split(where, "the tokens have the wrong type");
  }
  const int64_t tokens = shape[0];
  if (split.offsets_.front() != 0 || split.offsets_.back() != tokens) {
    fail_split(where, "the document offsets do not fit the tokens");
  }
  const int64_t begin = reader.contiguous_offset(group + "/tokens");
  const auto lies_in_file = [&](int64_t at, int64_t count, int64_t width) {
    return at >= 0 && at <= split.file_bytes_ && count <= (split.file_bytes_ - at) / width;
  };
  if (!lies_in_file(begin, tokens, static_cast<int64_t>(size_of(dtype)))) {
    fail_split(where, "the tokens reach beyond the end of the file");
  }
  if (reader.has(group + "/marks")) {
    const auto [type, size] = reader.info(group + "/marks");
    const int64_t targets = tokens + static_cast<int64_t>(documents);
    if (type != DType::u8 || size.rank() != 1 || size[0] != targets)
      fail_split(where, "the marks do not fit the tokens");
    const int64_t at = reader.contiguous_offset(group + "/marks");
    if (!lies_in_file(at, targets, 1)) fail_split(where, "the marks reach beyond the end of the file");
    split.marks_ = reinterpret_cast<const uint8_t*>(mapped.data() + at);
  }
  if (reader.has(group + "/chance")) {
    const auto [type, size] = reader.info(group + "/chance");
    if (split.marks_ == nullptr || type != DType::f64 || size.rank() != 1 || size[0] != static_cast<int64_t>(documents))
      fail_split(where, "the chances do not fit the documents");
    split.chance_ = reader.get(group + "/chance").to_vector<double>();
    if (!std::all_of(split.chance_.begin(), split.chance_.end(), [](double chance) { return chance >= 0; }))
      fail_split(where, "there is a chance that is no number from 0 on");
  }
  split.dtype_ = dtype;
  split.data_ = mapped.data() + begin;
  split.place_ = begin;
  split.totals_ = {.documents = static_cast<int64_t>(documents),
                   .tokens = tokens,
                   .bytes = sum(split.bytes_),
                   .words = sum(split.words_)};
  return split;
}

// Verifies the file. With Verify::once it waits for other processes that verify the same file; without locks, as on
// some network file systems, each verifies.
void Corpus::verify(Verify how, std::chrono::nanoseconds settle) {
  const auto verify_all = [&] {
    verify_against_manifest(*file_, manifest_);
    // The time limit follows from the file's size: only the list of documents is read, and this rate is low.
    constexpr int64_t kBytesPerSecond = int64_t{1} << 24;
    const auto seconds = static_cast<int>(2 + manifest_.size / kBytesPerSecond);
    try_in_child(path_, ErrorKind::data, seconds, [&] { read_structure(); });
  };
  if (how == Verify::done) return require_size(*file_, manifest_);
  if (how == Verify::always) return verify_all();
  while (::flock(file_->descriptor(), LOCK_EX) != 0 && errno == EINTR) {
  }
  stamp_ = std::make_unique<CorpusStamp>(*file_, manifest_.checksum, settle);
  if (!stamp_->verified()) {
    verify_all();
    stamp_->set_verified();
  }
  ::flock(file_->descriptor(), LOCK_UN);
}

void Corpus::read_structure() {
  const Hdf5Reader reader = Hdf5Reader::open_file(path_);
  if (!reader.has_attribute("/", "format") || reader.attribute_text("/", "format") != kCorpusFormat) {
    fail(ErrorKind::data, "{}: not a corpus of quire", path_.string());
  }
  if (const int64_t version = reader.attribute_int("/", "version"); version != kCorpusVersion) {
    fail_split(path_.string(),
               fmt::format("format version {}, this program reads version {}", version, kCorpusVersion));
  }
  tokenizer_ = make_tokenizer(reader.get_text("tokenizer"), path_.string(), ErrorKind::data);
  word_rule_ = reader.has_attribute("/", "words") ? reader.attribute_text("/", "words") : kFormerWordRule;
  splits_.clear();
  for (const std::string& name : reader.list("splits")) {
    splits_[name] = Split::load(reader, "splits/" + name, *file_, map_->bytes(), describe(name));
  }
}

Corpus::Corpus(const std::filesystem::path& path, Verify how, std::chrono::nanoseconds settle) : path_(path) {
  if (!std::filesystem::exists(path)) {
    fail(ErrorKind::data, "{}: no such corpus; make one with quire prepare", path.string());
  }
  require_corpus_file(path);
  finish_interrupted_corpus(path);
  manifest_ = read_manifest(path);
  file_ = File::open(path, ErrorKind::data);
  map_ = std::make_unique<MappedFile>(*file_);
  verify(how, settle);
  read_structure();
  bool described = manifest_.tokenizer == tokenizer_->kind() && manifest_.vocabulary == tokenizer_->vocabulary_size() &&
                   manifest_.splits.size() == splits_.size();
  for (const auto& [name, split] : splits_) {
    const auto found = manifest_.splits.find(name);
    described = described && found != manifest_.splits.end() && found->second == split.totals();
  }
  if (!described) fail_split(manifest_path(path).string(), "the summary does not fit the corpus: damaged");
}

std::unique_ptr<Corpus> Corpus::open(const std::filesystem::path& path, Verify verify,
                                     std::chrono::nanoseconds settle) {
  return std::unique_ptr<Corpus>(new Corpus(path, verify, settle));
}

std::string Corpus::describe(const std::string& split) const {
  return fmt::format("{}: split {}", path_.string(), split);
}

std::vector<std::string> Corpus::split_names() const {
  std::vector<std::string> names;
  for (const auto& [name, split] : splits_) names.push_back(name);
  return names;
}

void Corpus::trust(std::span<const std::string> splits) {
  const std::lock_guard<std::mutex> lock(mutex_);
  checked_.insert(splits.begin(), splits.end());
}

const Split& Corpus::split(const std::string& name) {
  const auto found = splits_.find(name);
  if (found == splits_.end()) {
    fail(ErrorKind::config, "{}: no split \"{}\"; there is: {}", path_.string(), name, fmt::join(split_names(), ", "));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (checked_.count(name) == 0) {
    if (stamp_ == nullptr || !stamp_->checked(name)) {
      found->second.check_ids(tokenizer_->vocabulary_size(), describe(name));
      if (stamp_ != nullptr) stamp_->set_checked(name);
    }
    checked_.insert(name);
  }
  return found->second;
}

}  // namespace quire
