#include "data/corpus/corpus_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <unordered_map>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/hdf5_file.h"
#include "data/corpus/documents.h"
#include "data/sources/utf8.h"

namespace quire {

static_assert(std::endian::native == std::endian::little, "token files are little endian and mapped as they are");

namespace {

constexpr size_t kBuffer = size_t{1} << 20;

// By the tokenizer, not by what occurs: corpora of one tokenizer look alike.
DType narrowest_type(int64_t content_size) {
  if (content_size <= 256) return DType::u8;
  return content_size <= 65536 ? DType::u16 : DType::i32;
}

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

void remove_quietly(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

template <typename Stored>
void append_as(std::span<const int32_t> ids, std::vector<std::byte>& buffer) {
  size_t at = buffer.size();
  buffer.resize(at + ids.size() * sizeof(Stored));
  for (const int32_t id : ids) {
    const auto stored = static_cast<Stored>(id);
    std::memcpy(&buffer[at], &stored, sizeof(Stored));
    at += sizeof(Stored);
  }
}

bool is_split_name(const std::string& name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                              std::string::npos;
}

std::filesystem::path checked_output(std::filesystem::path output, bool force) {
  if (std::filesystem::is_directory(output)) {
    fail(ErrorKind::config, "{}: the output is a folder; give a file name such as corpus.h5", output.string());
  }
  if (!force && std::filesystem::exists(output)) {
    fail(ErrorKind::config, "{}: exists already; use --force to replace it", output.string());
  }
  return output;
}

struct HashOfHash {
  size_t operator()(const Hash128& hash) const { return hash[0]; }
};

}  // namespace

struct CorpusWriter::OpenDocument {
  std::string split;
  std::string origin;
  Document document;
  bool in_word = false;
  Utf8Validator validator;
  ContentHash hash;
  std::string pending;  // text that cannot be encoded before more is known
};

CorpusWriter::CorpusWriter(std::filesystem::path output, const Tokenizer& tokenizer, const CorpusWriterOptions& options)
    : output_(checked_output(std::move(output), options.force)),
      partial_(with_suffix(output_, ".partial")),
      manifest_partial_(with_suffix(manifest_path(output_), ".partial")),
      tokenizer_(tokenizer),
      options_(options),
      dtype_(narrowest_type(tokenizer.content_size())),
      scratch_(File::scratch(output_.has_parent_path() ? output_.parent_path() : ".")) {}

CorpusWriter::~CorpusWriter() {
  remove_quietly(partial_);
  remove_quietly(manifest_partial_);
}

void CorpusWriter::begin_split(const std::string& split) {
  if (!is_split_name(split)) {
    fail(ErrorKind::config, "split name \"{}\": use letters, digits, '_' and '-'", split);
  }
  splits_[split];
}

CorpusWriter::SplitDocuments& CorpusWriter::find_split(const std::string& split) {
  const auto found = splits_.find(split);
  QUIRE_CHECK(found != splits_.end(), "corpus writer: there is no split {}", split);
  return found->second;
}

void CorpusWriter::begin_document(const std::string& split, const std::string& name, const std::string& origin) {
  QUIRE_CHECK(!document_, "corpus writer: {} begins before {} ended", name, document_->document.name);
  begin_split(split);
  document_ = std::make_unique<OpenDocument>();
  document_->split = split;
  document_->origin = origin;
  document_->document.name = name;
  document_->document.first = tokens_;
  document_->document.first_mark = marks_;
}

void CorpusWriter::append(std::string_view bytes) {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: text outside a document");
  OpenDocument& open = *document_;
  if (!options_.any_bytes) {
    if (const std::optional<int64_t> wrong = open.validator.feed(bytes)) {
      fail(ErrorKind::data, "{}: invalid UTF-8 at byte {}; repair the file or use --any-bytes", open.origin, *wrong);
    }
  }
  count(bytes);
  if (!open.pending.empty()) bytes = open.pending += bytes;
  const size_t whole = tokenizer_.divisible_prefix(bytes);
  encode(bytes.substr(0, whole));
  open.pending = std::string(bytes.substr(whole));
}

// Bytes, words and the hash of the text.
void CorpusWriter::count(std::string_view bytes) {
  OpenDocument& open = *document_;
  open.hash.feed(bytes);
  for (const char c : bytes) {
    const bool in_word = !is_space(c);
    open.document.words += in_word && !open.in_word ? 1 : 0;
    open.in_word = in_word;
  }
  open.document.bytes += static_cast<int64_t>(bytes.size());
}

void CorpusWriter::append_tokens(std::span<const int32_t> ids) {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: tokens outside a document");
  count(tokenizer_.decode(ids));
  document_->document.tokens += static_cast<int64_t>(ids.size());
  store(ids);
}

void CorpusWriter::append_marks(std::span<const uint8_t> marks) {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: marks outside a document");
  if (!marks_scratch_) {
    marks_scratch_ = File::scratch(output_.has_parent_path() ? output_.parent_path() : ".");
  }
  marks_scratch_->write(std::as_bytes(marks));
  document_->document.marks += static_cast<int64_t>(marks.size());
  marks_ += static_cast<int64_t>(marks.size());
}

void CorpusWriter::encode(std::string_view text) {
  ids_.clear();
  tokenizer_.encode(text, ids_);
  document_->document.tokens += static_cast<int64_t>(ids_.size());
  store(ids_);
}

void CorpusWriter::end_document() {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: no document to end");
  if (const std::optional<int64_t> wrong = document_->validator.finish(); wrong && !options_.any_bytes) {
    fail(ErrorKind::data, "{}: invalid UTF-8 at byte {} (cut off at the end); repair the file or use --any-bytes",
         document_->origin, *wrong);
  }
  encode(document_->pending);
  const std::unique_ptr<OpenDocument> ended = std::move(document_);
  if (ended->document.tokens == 0) {
    ++find_split(ended->split).dropped;
    return;
  }
  QUIRE_CHECK(ended->document.marks == 0 || ended->document.marks == ended->document.tokens + 1,
              "corpus writer: {} marks for {} tokens", ended->document.marks, ended->document.tokens);
  ended->document.hash = ended->hash.value();
  tokens_ += ended->document.tokens;
  documents_.push_back(std::move(ended->document));
  add(ended->split, documents_.back(), ended->origin);
}

void CorpusWriter::add(const std::string& split, const Document& document, const std::string& origin) {
  SplitDocuments& into = find_split(split);
  if (!into.names.insert(document.name).second) {
    fail(ErrorKind::data, "{}: split {} has a document named {} already; names have to differ", origin, split,
         document.name);
  }
  into.documents.push_back(&document);
}

void CorpusWriter::store(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    QUIRE_CHECK(id >= 0 && id < tokenizer_.content_size(), "corpus writer: the tokenizer gave id {} of {}", id,
                tokenizer_.content_size());
  }
  if (dtype_ == DType::u8) append_as<uint8_t>(ids, buffer_);
  if (dtype_ == DType::u16) append_as<uint16_t>(ids, buffer_);
  if (dtype_ == DType::i32) append_as<int32_t>(ids, buffer_);
  if (buffer_.size() < kBuffer) return;
  scratch_.write(buffer_);
  buffer_.clear();
}

int64_t CorpusWriter::documents(const std::string& split) const {
  const auto found = splits_.find(split);
  return found == splits_.end() ? 0 : static_cast<int64_t>(found->second.documents.size());
}

int64_t CorpusWriter::dropped(const std::string& split) const {
  const auto found = splits_.find(split);
  return found == splits_.end() ? 0 : found->second.dropped;
}

template <typename Moves>
void CorpusWriter::move_if(const std::string& from, const std::string& to, const Moves& moves) {
  begin_split(to);
  SplitDocuments& source = find_split(from);
  std::vector<const Document*> stay;
  for (const Document* document : source.documents) {
    if (!moves(*document)) {
      stay.push_back(document);
      continue;
    }
    source.names.erase(document->name);
    add(to, *document, output_.string());
  }
  source.documents = std::move(stay);
}

void CorpusWriter::move_documents(const std::string& from, const std::string& to, const std::vector<std::string>& names,
                                  const std::string& origin) {
  for (const std::string& name : names) {
    if (find_split(from).names.count(name) == 0) {
      fail(ErrorKind::data, "{}: no document is named \"{}\" (names are paths below --input, without .txt)", origin,
           name);
    }
  }
  const std::unordered_set<std::string_view> moved(names.begin(), names.end());
  move_if(from, to, [&](const Document& document) { return moved.count(document.name) > 0; });
}

void CorpusWriter::move_share(const std::string& from, const std::string& to, int64_t count) {
  std::vector<Hash128> hashes;
  for (const Document* document : find_split(from).documents) hashes.push_back(document->hash);
  const auto index = static_cast<size_t>(count) - 1;
  QUIRE_CHECK(count > 0 && index < hashes.size(), "corpus writer: a share of {} documents of {}", count, hashes.size());
  std::nth_element(hashes.begin(), hashes.begin() + static_cast<std::ptrdiff_t>(index), hashes.end());
  move_if(from, to, [limit = hashes[index]](const Document& document) { return document.hash <= limit; });
}

void CorpusWriter::check_duplicates() const {
  std::unordered_map<Hash128, std::pair<const std::string*, const Document*>, HashOfHash> seen;
  for (const auto& [name, split] : splits_) {
    for (const Document* document : split.documents) {
      const auto [at, is_new] = seen.try_emplace(document->hash, &name, document);
      const auto [other_split, other] = at->second;
      if (is_new || *other_split == name) continue;
      fail(ErrorKind::data, "split {}: {} is the same text as {} of split {}; remove one, or use --allow-duplicates",
           name, document->name, other->name, *other_split);
    }
  }
}

void CorpusWriter::write_marks(Hdf5Writer& writer, const std::string& group, const SplitDocuments& split) {
  int64_t targets = 0;
  int64_t marked = 0;
  for (const Document* document : split.documents) {
    targets += document->tokens + 1;
    marked += document->marks;
  }
  if (marked == 0) return;
  QUIRE_CHECK(marked == targets, "corpus writer: {} of {} targets of a split have marks", marked, targets);
  size_t document = 0;
  int64_t done = 0;  // of this document
  writer.put_stream(group + "/marks", DType::u8, targets, [&](std::span<std::byte> piece) {
    while (!piece.empty()) {
      const Document& from = *split.documents[document];
      const size_t count = std::min(piece.size(), static_cast<size_t>(from.marks - done));
      QUIRE_CHECK(marks_scratch_->read_at(from.first_mark + done, piece.first(count)) == count,
                  "corpus writer: the scratch file of marks is too short");
      piece = piece.subspan(count);
      done += static_cast<int64_t>(count);
      if (done < from.marks) continue;
      ++document;
      done = 0;
    }
  });
}

void CorpusWriter::write_file() {
  Hdf5Writer writer(partial_);
  writer.set_attribute("/", "format", std::string(kCorpusFormat));
  writer.set_attribute("/", "version", kCorpusVersion);
  writer.put_text("tokenizer", tokenizer_.serialise());
  const auto width = static_cast<int64_t>(size_of(dtype_));
  for (const auto& [name, split] : splits_) {
    const std::string group = "splits/" + name;
    const auto documents = static_cast<int64_t>(split.documents.size());
    std::vector<int64_t> offsets{0};
    std::vector<int64_t> bytes;
    std::vector<int64_t> words;
    std::vector<std::string> names;
    std::vector<std::pair<int64_t, int64_t>> ranges;  // of the scratch file, in bytes: begin and length
    for (const Document* document : split.documents) {
      const int64_t begin = document->first * width;
      if (ranges.empty() || ranges.back().first + ranges.back().second != begin) ranges.emplace_back(begin, 0);
      ranges.back().second += document->tokens * width;
      offsets.push_back(offsets.back() + document->tokens);
      bytes.push_back(document->bytes);
      words.push_back(document->words);
      names.push_back(document->name);
    }
    size_t range = 0;
    writer.put_stream(group + "/tokens", dtype_, offsets.back(), [&](std::span<std::byte> piece) {
      while (!piece.empty()) {
        auto& [begin, left] = ranges[range];
        const size_t count = std::min(piece.size(), static_cast<size_t>(left));
        QUIRE_CHECK(scratch_.read_at(begin, piece.first(count)) == count,
                    "corpus writer: the scratch file is too short");
        piece = piece.subspan(count);
        begin += static_cast<int64_t>(count);
        left -= static_cast<int64_t>(count);
        if (left == 0) ++range;
      }
    });
    writer.put(group + "/offsets", Tensor::from(offsets, {documents + 1}));
    writer.put(group + "/bytes", Tensor::from(bytes, {documents}));
    writer.put(group + "/words", Tensor::from(words, {documents}));
    writer.put_texts(group + "/names", names);
    write_marks(writer, group, split);
  }
  writer.close();
}

CorpusManifest CorpusWriter::finish() {
  QUIRE_CHECK(!document_, "corpus writer: {} has not ended", document_->document.name);
  CorpusManifest manifest;
  manifest.tokenizer = tokenizer_.kind();
  manifest.vocabulary = tokenizer_.vocabulary_size();
  if (splits_.empty()) fail(ErrorKind::data, "{}: there is no document to put into the corpus", output_.string());
  for (const auto& [name, split] : splits_) {
    if (split.documents.empty()) {
      fail(ErrorKind::data, "{}: split {} has no document left (empty ones are dropped)", output_.string(), name);
    }
    SplitTotals& totals = manifest.splits[name];
    totals.documents = static_cast<int64_t>(split.documents.size());
    for (const Document* document : split.documents) {
      totals.tokens += document->tokens;
      totals.bytes += document->bytes;
      totals.words += document->words;
    }
  }
  if (!options_.allow_duplicates) check_duplicates();
  scratch_.write(buffer_);
  buffer_.clear();
  write_file();
  flush_file(partial_);
  {
    File file = File::open(partial_);
    manifest.size = file.size();
    manifest.checksum = checksum_of_file(file);
  }
  // Everything that can fill the disk comes before the first rename.
  write_file_durably(manifest_partial_, manifest_to_json(manifest));
  rename_durably(partial_, output_);
  rename_durably(manifest_partial_, manifest_path(output_));
  return manifest;
}

}  // namespace quire
