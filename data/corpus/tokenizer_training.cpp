#include "data/corpus/tokenizer_training.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "data/corpus/corpus.h"
#include "data/corpus/text_trainer.h"
#include "data/sources/open_documents.h"
#include "data/sources/utf8.h"
#include "data/tokenizers/bpe_spec_reader.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"

namespace quire {

namespace {

constexpr int64_t kLongestModel = int64_t{1} << 30;
void read_document(DocumentReader& reader, TextTrainer& trainer, const std::function<void()>& progress) {
  Utf8Validator validator;
  std::optional<int64_t> wrong;
  for (std::string_view piece = reader.next(); !piece.empty() && !wrong; piece = reader.next()) {
    wrong = validator.feed(piece);
    if (!wrong) trainer.add(piece);
    if (progress) progress();
  }
  if (!wrong) wrong = validator.finish();
  if (wrong) fail(ErrorKind::data, "{}: invalid UTF-8 at byte {}; repair the file", reader.where(), *wrong);
  trainer.end_document();
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

void read_corpus(const TrainCorpus& from, TextTrainer& trainer, const std::function<void(int64_t bytes)>& progress) {
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
    trainer.add(text);
    trainer.end_document();
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

bool is_tokenizer_json(const std::filesystem::path& path) {
  try {
    read_bpe_spec(read_text_file(path, {.max_bytes = kLargestTokenizerFile}));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Throws Error(config) when the output must not be written.
void require_output(const TokenizerTraining& options) {
  const bool bpe = options.kind == "bpe";
  if (std::filesystem::is_directory(options.output)) {
    fail(ErrorKind::config, "{}: the output is a folder; give a file name such as {}", options.output.string(),
         bpe ? "tokenizer.json" : "spm.model");
  }
  require_output_folder(options.output, "--output");
  const char* what = bpe ? "a tokenizer.json" : "a SentencePiece model";
  const auto is_own = bpe ? is_tokenizer_json : is_sentencepiece_model;
  const bool exists = is_replaceable(options.output, what, is_own);
  is_replaceable(with_suffix(options.output, ".partial"), what, is_own);
  if (!options.force && exists) {
    fail(ErrorKind::config, "{}: exists already; use --force to replace it", options.output.string());
  }
}

}  // namespace

TokenizerTrainingReport train_tokenizer(const TokenizerTraining& options,
                                        const std::function<void(int64_t bytes, int64_t total_bytes)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  require_output(options);
  const std::unique_ptr<TextTrainer> trainer = options.kind == "bpe"
                                                   ? make_bpe_trainer(options.model.vocabulary)
                                                   : make_sentencepiece_trainer(options.model, options.max_sentences);
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
  int64_t before = 0;
  for (const DocumentFile& file : files) {
    const std::unique_ptr<DocumentReader> reader = open_documents(file, keys);
    while (reader->next_document()) {
      read_document(*reader, *trainer, [&] {
        if (progress) progress(before + reader->consumed(), total);
      });
    }
    before += reader->consumed();
  }
  for (const TrainCorpus& from : corpora) {
    read_corpus(from, *trainer, [&](int64_t bytes) {
      if (progress) progress(before + bytes, total);
    });
    before += from.split->totals().bytes;
  }
  if (trainer->empty()) fail(ErrorKind::data, "there is no text to train a tokenizer on");
  const std::string model = trainer->train();
  const std::unique_ptr<Tokenizer> tokenizer = trainer->open(model);
  QUIRE_CHECK(!tokenizer->lossy(), "tokenizer training: the tokenizer alters text");
  replace_file_atomically(options.output, model);

  report.vocabulary = tokenizer->vocabulary_size();
  const TrainedLines lines = trainer->lines();
  report.sentences = lines.seen;
  report.used_sentences = lines.used;
  std::vector<int32_t> ids;
  size_t bytes = 0;
  trainer->examples([&](std::string_view text) {
    bytes += text.size();
    tokenizer->encode(text, ids);
    return bytes < kExampleBytes;
  });
  report.bytes_per_token = static_cast<double>(bytes) / static_cast<double>(ids.size());
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace quire
