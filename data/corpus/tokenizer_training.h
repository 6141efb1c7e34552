// Trains a SentencePiece model, or a byte-level BPE tokenizer, on documents, for `quire tokenizer train`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/sources/document_reader.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace quire {

struct TokenizerTraining {
  std::string kind = "sentencepiece";         // or bpe, written as tokenizer.json
  std::vector<std::filesystem::path> inputs;  // files and folders; of a corpus (.h5), the split `train`
  RecordKeys keys;                            // keys of .jsonl records
  SentencePieceTraining model;                // of bpe, the vocabulary alone
  int64_t max_sentences =
      1'000'000;  // the largest number of lines used; SentencePiece keeps them in memory, bpe uses all
  std::filesystem::path output;
  bool force = false;             // replace an existing file
  bool skip_bad_records = false;  // leave out .jsonl records that cannot be read
};

struct TokenizerTrainingReport {
  int64_t vocabulary = 0;
  int64_t sentences = 0;       // lines read
  int64_t used_sentences = 0;  // lines used for training
  double bytes_per_token = 0;  // on the used lines
  double seconds = 0;
  int64_t hidden = 0;                       // files and folders whose names begin with a dot
  std::map<std::string, int64_t> left_out;  // number of records, by what is wrong with them
};

// `progress` may be empty; it is called while documents are read. When there are more lines than max_sentences, a
// random choice is used, which is the same for the same documents.
TokenizerTrainingReport train_tokenizer(const TokenizerTraining& options,
                                        const std::function<void(int64_t bytes, int64_t total_bytes)>& progress);

}  // namespace quire
