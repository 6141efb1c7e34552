#include "data/corpus_writer.h"

#include <bit>
#include <cstring>
#include <numeric>

#include "core/check.h"
#include "core/file_io.h"
#include "core/hdf5_file.h"
#include "data/utf8.h"

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

}  // namespace

struct CorpusWriter::OpenDocument {
  Spool* spool = nullptr;
  std::string name;
  std::string origin;
  int64_t tokens = 0;
  int64_t bytes = 0;
  int64_t words = 0;
  bool in_word = false;
  Utf8Validator validator;
};

CorpusWriter::CorpusWriter(std::filesystem::path output, const Tokenizer& tokenizer, const CorpusWriterOptions& options)
    : output_(std::move(output)),
      partial_(with_suffix(output_, ".partial")),
      manifest_partial_(with_suffix(manifest_path(output_), ".partial")),
      tokenizer_(tokenizer),
      options_(options),
      dtype_(narrowest_type(tokenizer.content_size())) {
  if (std::filesystem::is_directory(output_)) {
    fail(ErrorKind::config, "{}: the output is a folder; give a file name such as corpus.h5", output_.string());
  }
  if (!options_.force && std::filesystem::exists(output_)) {
    fail(ErrorKind::config, "{}: exists already; use --force to replace it", output_.string());
  }
}

CorpusWriter::~CorpusWriter() {
  remove_quietly(partial_);
  remove_quietly(manifest_partial_);
}

void CorpusWriter::begin_split(const std::string& split) {
  if (spools_.count(split) > 0) return;
  if (!is_split_name(split)) {
    fail(ErrorKind::config, "split name \"{}\": use letters, digits, '_' and '-'", split);
  }
  const std::filesystem::path folder = output_.has_parent_path() ? output_.parent_path() : ".";
  spools_.emplace(split, File::scratch(folder));
}

void CorpusWriter::begin_document(const std::string& split, const std::string& name, const std::string& origin) {
  QUIRE_CHECK(!document_, "corpus writer: {} begins before {} ended", name, document_->name);
  begin_split(split);
  document_ = std::make_unique<OpenDocument>();
  document_->spool = &spools_.at(split);
  document_->name = name;
  document_->origin = origin;
}

void CorpusWriter::append(std::string_view bytes) {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: text outside a document");
  OpenDocument& document = *document_;
  if (!options_.any_bytes) {
    if (const std::optional<int64_t> wrong = document.validator.feed(bytes)) {
      fail(ErrorKind::data, "{}: invalid UTF-8 at byte {}; repair the file or use --any-bytes", document.origin,
           *wrong);
    }
  }
  for (const char c : bytes) {
    const bool in_word = !is_space(c);
    document.words += in_word && !document.in_word ? 1 : 0;
    document.in_word = in_word;
  }
  document.bytes += static_cast<int64_t>(bytes.size());
  ids_.clear();
  tokenizer_.encode(bytes, ids_);
  document.tokens += static_cast<int64_t>(ids_.size());
  store(*document.spool, ids_);
}

void CorpusWriter::end_document() {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: no document to end");
  const std::unique_ptr<OpenDocument> ended = std::move(document_);
  const OpenDocument& document = *ended;
  if (const std::optional<int64_t> wrong = document.validator.finish(); wrong && !options_.any_bytes) {
    fail(ErrorKind::data, "{}: invalid UTF-8 at byte {} (cut off at the end); repair the file or use --any-bytes",
         document.origin, *wrong);
  }
  Spool& spool = *document.spool;
  if (document.tokens == 0) {
    ++spool.dropped;
    return;
  }
  spool.offsets.push_back(spool.offsets.back() + document.tokens);
  spool.bytes.push_back(document.bytes);
  spool.words.push_back(document.words);
  spool.names.push_back(document.name);
}

void CorpusWriter::store(Spool& spool, std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    QUIRE_CHECK(id >= 0 && id < tokenizer_.content_size(), "corpus writer: the tokenizer gave id {} of {}", id,
                tokenizer_.content_size());
  }
  if (dtype_ == DType::u8) append_as<uint8_t>(ids, spool.buffer);
  if (dtype_ == DType::u16) append_as<uint16_t>(ids, spool.buffer);
  if (dtype_ == DType::i32) append_as<int32_t>(ids, spool.buffer);
  if (spool.buffer.size() < kBuffer) return;
  spool.file.write(spool.buffer);
  spool.buffer.clear();
}

int64_t CorpusWriter::dropped(const std::string& split) const {
  const auto found = spools_.find(split);
  return found == spools_.end() ? 0 : found->second.dropped;
}

void CorpusWriter::write_file() {
  Hdf5Writer writer(partial_);
  writer.set_attribute("/", "format", std::string(kCorpusFormat));
  writer.set_attribute("/", "version", kCorpusVersion);
  writer.put_text("tokenizer", tokenizer_.serialise());
  for (auto& [name, spool] : spools_) {
    const std::string group = "splits/" + name;
    const auto documents = static_cast<int64_t>(spool.names.size());
    spool.file.write(spool.buffer);
    spool.file.rewind();
    File& file = spool.file;
    writer.put_stream(group + "/tokens", dtype_, spool.offsets.back(), [&file](std::span<std::byte> piece) {
      QUIRE_CHECK(file.read(piece) == piece.size(), "corpus writer: the scratch file is too short");
    });
    writer.put(group + "/offsets", Tensor::from(spool.offsets, {documents + 1}));
    writer.put(group + "/bytes", Tensor::from(spool.bytes, {documents}));
    writer.put(group + "/words", Tensor::from(spool.words, {documents}));
    writer.put_texts(group + "/names", spool.names);
  }
  writer.close();
}

CorpusManifest CorpusWriter::finish() {
  QUIRE_CHECK(!document_, "corpus writer: {} has not ended", document_->name);
  CorpusManifest manifest;
  manifest.tokenizer = tokenizer_.kind();
  manifest.vocabulary = tokenizer_.vocabulary_size();
  if (spools_.empty()) fail(ErrorKind::data, "{}: there is no document to put into the corpus", output_.string());
  for (const auto& [name, spool] : spools_) {
    if (spool.names.empty()) {
      fail(ErrorKind::data, "{}: split {} has no document left (empty ones are dropped)", output_.string(), name);
    }
    manifest.splits[name] = {.documents = static_cast<int64_t>(spool.names.size()),
                             .tokens = spool.offsets.back(),
                             .bytes = std::accumulate(spool.bytes.begin(), spool.bytes.end(), int64_t{0}),
                             .words = std::accumulate(spool.words.begin(), spool.words.end(), int64_t{0})};
  }
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
