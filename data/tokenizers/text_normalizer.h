// Normalises text as the steps of a tokenizer file say. Bytes that are not UTF-8 stay as they are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/bpe_spec.h"

namespace quire {

// Replaces all occurrences, which do not overlap, from left to right. `from` is not empty.
void replace_all(std::string& text, const std::string& from, const std::string& to);

class TextNormalizer {
 public:
  explicit TextNormalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // Returns true when a step may change something other than by Prepend and Replace.
  bool composes() const;
  bool prepends() const;
  // Normalises in place. `follows` says that the text continues one that was normalised before: nothing is prepended.
  void normalize(std::string& text, bool follows) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace quire
