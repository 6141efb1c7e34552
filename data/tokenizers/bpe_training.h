// Trains a byte-level BPE tokenizer: the pair of neighbours that occurs most often becomes a token, until there are as
// many as requested (Sennrich et al. 2016). Words are cut by the rules of Llama 3.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/tokenizers/bpe_tokenizer.h"

namespace quire {

// Ids of a trained tokenizer: the 256 bytes, the merges, and <|endoftext|>, which is BOS and EOS.
inline constexpr int64_t kSmallestBpeVocabulary = 257;

class BpeTrainer : private PreTokenizer::Words {
 public:
  BpeTrainer();
  ~BpeTrainer() override;

  // Takes the next part of a document, in UTF-8.
  void add_text(std::string_view text);
  void end_document();
  bool empty() const { return words_.empty(); }

  // Returns the text of a tokenizer.json; the same for the same documents, in any order. Throws Error(config) when the
  // text has too few pairs for so many ids.
  std::string train(int64_t vocabulary) const;

 private:
  void add(std::string_view word, bool is_valid) override;

  std::unique_ptr<BpeTokenizer> bytes_;  // has no merges; it cuts the words
  std::string pending_;                  // text that cannot be cut before more has arrived
  std::unordered_map<std::string, int64_t> words_;
};

}  // namespace quire
