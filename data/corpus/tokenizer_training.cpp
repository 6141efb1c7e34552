#include "data/corpus/tokenizer_training.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "core/random.h"
#include "data/corpus/corpus.h"
#include "data/sources/open_documents.h"
#include "data/sources/text_units.h"
#include "data/sources/utf8.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"

namespace quire {

namespace {

constexpr int64_t kLongestModel = int64_t{1} << 30;
constexpr uint32_t kScope = hash_scope("tokenizer.sentences");

// The trainer uses these characters internally and drops a sentence that contains one. They end a sentence here;
// encoding turns them into bytes.
constexpr std::string_view kReserved[] = {"\xE2\x96\x81", "\xE2\x96\x85", std::string_view("\0", 1)};

// Keeps a uniform random sample of fixed size of all lines (Vitter's algorithm R).
class Sample {
 public:
  explicit Sample(int64_t limit) : limit_(limit) {}

  void add(std::string_view text) {
    while (!text.empty()) {
      size_t end = text.size();
      size_t next = text.size();
      for (const std::string_view reserved : kReserved) {
        const size_t at = text.find(reserved);
        if (at >= end) continue;
        end = at;
        next = at + reserved.size();
      }
      if (end > 0) keep(text.substr(0, end));
      text.remove_prefix(next);
    }
  }
  int64_t seen() const { return seen_; }
  const std::vector<std::string>& sentences() const { return sentences_; }

 private:
  void keep(std::string_view sentence) {
    const int64_t index = seen_++;
    if (index < limit_) {
      sentences_.emplace_back(sentence);
      return;
    }
    const auto bits = philox(RandomKey{}, kScope, 0, static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(index));
    const uint64_t place = (uint64_t{bits[0]} << 32 | bits[1]) % static_cast<uint64_t>(seen_);
    if (place < static_cast<uint64_t>(limit_)) sentences_[place] = sentence;
  }

  int64_t limit_;
  int64_t seen_ = 0;
  std::vector<std::string> sentences_;
};

void add_units(std::string_view text, Sample& sample) {
  while (!text.empty()) {
    const size_t count = first_unit(text);
    std::string_view unit = text.substr(0, count);
    if (unit.back() == '\n') unit.remove_suffix(1);
    sample.add(unit);
    text.remove_prefix(count);
  }
}

void read_document(DocumentReader& reader, Sample& sample, const std::function<void()>& progress) {
  Utf8Validator validator;
  std::string pending;
  std::optional<int64_t> wrong;
  for (std::string_view piece = reader.next(); !piece.empty() && !wrong; piece = reader.next()) {
    wrong = validator.feed(piece);
    pending += piece;
    const size_t whole = whole_units(pending);
    add_units(std::string_view(pending).substr(0, whole), sample);
    pending.erase(0, whole);
    if (progress) progress();
  }
  if (!wrong) wrong = validator.finish();
  if (wrong) fail(ErrorKind::data, "{}: invalid UTF-8 at byte {}; repair the file", reader.where(), *wrong);
  add_units(pending, sample);
}

// A corpus whose split `train` is read.
struct TrainCorpus {
  std::string path;
  std::unique_ptr<Corpus> corpus;
  const Split* split = nullptr;
};

TrainCorpus open_corpus(const std::filesystem::path& path) {
  TrainCorpus opened{path.string(), Corpus::open(path, Verify::once)};
  opened.split = &opened.corpus->split("train");
  if (opened.corpus->tokenizer().lossy()) {
    fail(ErrorKind::config, "{}: its tokenizer alters text; give the documents that it was made from", opened.path);
  }
  return opened;
}

void read_corpus(const TrainCorpus& from, Sample& sample, const std::function<void(int64_t bytes)>& progress) {
  std::vector<int32_t> ids;
  int64_t bytes = 0;
  for (int64_t document = 0; document < from.split->documents(); ++document) {
    ids.resize(static_cast<size_t>(from.split->length(document)));
    from.split->tokens(document, 0, from.split->length(document), ids.data());
    const std::string text = from.corpus->tokenizer().decode(ids);
    Utf8Validator validator;
    if (validator.feed(text) || validator.finish()) {
      fail(ErrorKind::data, "{}: document {} is not UTF-8; a tokenizer is trained on text", from.path,
           from.split->name(document));
    }
    add_units(text, sample);
    bytes += from.split->bytes(document);
    progress(bytes);
  }
}

bool is_sentencepiece_model(const std::filesystem::path& path) {
  try {
    const SentencePieceTokenizer tokenizer(read_text_file(path, {.max_bytes = kLongestModel}));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TokenizerTrainingReport train_tokenizer(const TokenizerTraining& options,
                                        const std::function<void(int64_t bytes, int64_t total_bytes)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  if (std::filesystem::is_directory(options.output)) {
    fail(ErrorKind::config, "{}: the output is a folder; give a file name such as spm.model", options.output.string());
  }
  require_output_folder(options.output, "--output");
  const bool exists = is_replaceable(options.output, "a SentencePiece model", is_sentencepiece_model);
  is_replaceable(with_suffix(options.output, ".partial"), "a SentencePiece model", is_sentencepiece_model);
  if (!options.force && exists) {
    fail(ErrorKind::config, "{}: exists already; use --force to replace it", options.output.string());
  }
  std::vector<DocumentFile> files;
  std::vector<TrainCorpus> corpora;
  int64_t total = 0;
  TokenizerTrainingReport report;
  RecordKeys keys = options.keys;
  if (options.skip_bad_records) keys.left_out = &report.left_out;
  for (const std::filesystem::path& input : options.inputs) {
    if (input.extension() == ".h5") {
      corpora.push_back(open_corpus(input));
      total += corpora.back().split->totals().bytes;
      continue;
    }
    DocumentList list = find_documents(input);
    report.hidden += list.hidden;
    for (DocumentFile& file : list.documents) {
      total += file.bytes;
      files.push_back(std::move(file));
    }
  }
  Sample sample(options.max_sentences);
  int64_t before = 0;
  for (const DocumentFile& file : files) {
    const std::unique_ptr<DocumentReader> reader = open_documents(file, keys);
    while (reader->next_document()) {
      read_document(*reader, sample, [&] {
        if (progress) progress(before + reader->consumed(), total);
      });
    }
    before += reader->consumed();
  }
  for (const TrainCorpus& from : corpora) {
    read_corpus(from, sample, [&](int64_t bytes) {
      if (progress) progress(before + bytes, total);
    });
    before += from.split->totals().bytes;
  }
  if (sample.sentences().empty()) fail(ErrorKind::data, "there is no text to train a tokenizer on");

  size_t next = 0;
  const std::string model = train_sentencepiece(options.model, [&]() -> const std::string* {
    return next < sample.sentences().size() ? &sample.sentences()[next++] : nullptr;
  });
  const SentencePieceTokenizer tokenizer(model);
  QUIRE_CHECK(!tokenizer.lossy(), "tokenizer training: the model alters text: {}", tokenizer.alterations());
  replace_file_atomically(options.output, model);

  report.vocabulary = tokenizer.vocabulary_size();
  report.sentences = sample.seen();
  report.used_sentences = static_cast<int64_t>(sample.sentences().size());
  // Enough lines to give two significant digits.
  std::vector<int32_t> ids;
  size_t bytes = 0;
  for (size_t i = 0; i < sample.sentences().size() && bytes < (size_t{1} << 22); ++i) {
    bytes += sample.sentences()[i].size() + 1;  // with the newline
    tokenizer.encode(sample.sentences()[i] + "\n", ids);
  }
  report.bytes_per_token = static_cast<double>(bytes) / static_cast<double>(ids.size());
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace quire
