// A SentencePiece model trained on a few lines.
#pragma once

#include <string>

#include "data/tokenizers/sentencepiece_model.h"

namespace quire::test {

// Returns a model with 340 ids, trained on text like "the quire is a gathering of leaves".
inline std::string small_sentencepiece(const std::string& kind = "bpe") {
  const std::string sentences[] = {"the quire is a gathering of leaves, and the leaves are read one by one",
                                   "a reader with notes reads the leaves of the quire; the notes are kept",
                                   "Of the making of many books there is no end, and much study is a weariness",
                                   "\xC3\xA9t\xC3\xA9 \xC3\xA9t\xC3\xA9 \xC3\xA9t\xC3\xA9"};
  size_t next = 0;
  return train_sentencepiece(
      {.vocabulary = 300, .model = kind, .character_coverage = 1.0},
      [&]() -> const std::string* { return next < std::size(sentences) ? &sentences[next++] : nullptr; });
}

}  // namespace quire::test
