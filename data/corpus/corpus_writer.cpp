#include "data/corpus/corpus_writer.h"

#include "core/check.h"
#include "core/files/file_io.h"
#include "data/corpus/corpus_datasets.h"
#include "data/corpus/corpus_output.h"
#include "data/sources/utf8.h"
#include "data/sources/word_counter.h"

namespace quire {

namespace {

void remove_quietly(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

std::filesystem::path checked_output(std::filesystem::path output, bool force) {
  require_corpus_output(output, force);
  return output;
}

}  // namespace

struct CorpusWriter::OpenDocument {
  std::string split;
  std::string origin;
  WrittenDocument document;
  WordCounter words;
  Utf8Validator validator;
  ContentHash hash;
  std::string pending;  // text that cannot be encoded before more text has arrived
  bool begun = false;   // a part of the text was encoded
};

CorpusWriter::CorpusWriter(std::filesystem::path output, const Tokenizer& tokenizer, const CorpusWriterOptions& options)
    : output_(checked_output(std::move(output), options.force)),
      partial_(with_suffix(output_, ".partial")),
      manifest_partial_(with_suffix(manifest_path(output_), ".partial")),
      tokenizer_(tokenizer),
      options_(options),
      spool_(output_.has_parent_path() ? output_.parent_path() : ".", tokenizer.content_size()),
      documents_(output_.string()) {}

CorpusWriter::~CorpusWriter() {
  remove_quietly(partial_);
  remove_quietly(manifest_partial_);
}

void CorpusWriter::begin_document(const std::string& split, const std::string& name, const std::string& origin) {
  QUIRE_CHECK(!document_, "corpus writer: {} begins before {} ended", name, document_->document.name);
  documents_.begin_split(split);
  document_ = std::make_unique<OpenDocument>();
  document_->split = split;
  document_->origin = origin;
  document_->document.name = name;
  document_->document.first = spool_.tokens();
  document_->document.first_mark = spool_.marks();
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
  open.pending += bytes;
  const size_t whole = tokenizer_.divisible_prefix(open.pending);
  encode(std::string_view(open.pending).substr(0, whole));
  open.pending.erase(0, whole);
}

// Counts bytes and words, and hashes the text.
void CorpusWriter::count(std::string_view bytes) {
  OpenDocument& open = *document_;
  open.hash.feed(bytes);
  open.words.feed(bytes);
  open.document.bytes += static_cast<int64_t>(bytes.size());
}

void CorpusWriter::append_tokens(std::span<const int32_t> ids) {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: tokens outside a document");
  count(tokenizer_.decode(ids));
  document_->document.tokens += static_cast<int64_t>(ids.size());
  spool_.append(ids);
}

void CorpusWriter::append_marks(std::span<const uint8_t> marks) {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: marks outside a document");
  spool_.append_marks(marks);
  document_->document.marks += static_cast<int64_t>(marks.size());
}

void CorpusWriter::set_chance(double chance) {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: chance outside a document");
  document_->document.chance = chance;
}

void CorpusWriter::encode(std::string_view text) {
  ids_.clear();
  if (document_->begun) {
    tokenizer_.encode_rest(text, ids_);
  } else {
    tokenizer_.encode(text, ids_);
  }
  document_->begun = document_->begun || !text.empty();
  document_->document.tokens += static_cast<int64_t>(ids_.size());
  spool_.append(ids_);
}

void CorpusWriter::end_document() {
  QUIRE_CHECK(document_ != nullptr, "corpus writer: no document to end");
  if (const std::optional<int64_t> wrong = document_->validator.finish(); wrong && !options_.any_bytes) {
    fail(ErrorKind::data, "{}: invalid UTF-8 at byte {} (cut off at the end); repair the file or use --any-bytes",
         document_->origin, *wrong);
  }
  encode(document_->pending);
  const std::unique_ptr<OpenDocument> ended = std::move(document_);
  if (ended->document.tokens == 0) return documents_.drop(ended->split);
  QUIRE_CHECK(ended->document.marks == 0 || ended->document.marks == ended->document.tokens + 1,
              "corpus writer: {} marks for {} tokens", ended->document.marks, ended->document.tokens);
  ended->document.hash = ended->hash.value();
  ended->document.words = ended->words.words();
  documents_.add(ended->split, std::move(ended->document), ended->origin);
}

CorpusManifest CorpusWriter::finish(const std::map<std::string, int64_t>& left_out) {
  QUIRE_CHECK(!document_, "corpus writer: {} has not ended", document_->document.name);
  CorpusManifest manifest;
  manifest.left_out = left_out;
  manifest.tokenizer = tokenizer_.kind();
  manifest.vocabulary = tokenizer_.vocabulary_size();
  if (documents_.splits().empty()) {
    fail(ErrorKind::data, "{}: there is no document to put into the corpus", output_.string());
  }
  for (const auto& [name, split] : documents_.splits()) {
    if (split.documents.empty()) {
      fail(ErrorKind::data, "{}: split {} has no document left (empty ones are dropped)", output_.string(), name);
    }
    SplitTotals& totals = manifest.splits[name];
    totals.documents = static_cast<int64_t>(split.documents.size());
    for (const WrittenDocument* document : split.documents) {
      totals.tokens += document->tokens;
      totals.bytes += document->bytes;
      totals.words += document->words;
    }
  }
  if (!options_.allow_duplicates) documents_.check_duplicates();
  spool_.flush();
  require_corpus_output(output_, options_.force);  // checked again: hours may have passed
  write_corpus_datasets(partial_, tokenizer_, documents_, spool_);
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
