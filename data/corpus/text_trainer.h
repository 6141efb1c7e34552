// Takes the text of documents and makes a tokenizer of it, for train_tokenizer().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

// Text that gives the bytes per token two significant digits.
inline constexpr size_t kExampleBytes = size_t{1} << 22;

struct TrainedLines {
  int64_t seen = 0;
  int64_t used = 0;
};

// Documents come one after the other, in parts.
class TextTrainer {
 public:
  virtual ~TextTrainer() = default;
  virtual void add(std::string_view text) = 0;
  virtual void end_document() = 0;
  virtual bool empty() const = 0;
  // Returns the bytes of the file.
  virtual std::string train() const = 0;
  virtual std::unique_ptr<Tokenizer> open(const std::string& file) const = 0;
  virtual TrainedLines lines() const = 0;
  // Calls `each` for texts that were trained on, until it returns false.
  virtual void examples(const std::function<bool(std::string_view)>& each) const = 0;
};

// Makes a trainer of SentencePiece models, which uses at most so many lines.
std::unique_ptr<TextTrainer> make_sentencepiece_trainer(const SentencePieceTraining& options, int64_t max_sentences);
// Makes a trainer of byte-level BPE tokenizers.
std::unique_ptr<TextTrainer> make_bpe_trainer(int64_t vocabulary);

}  // namespace quire
