// The tokens that keys are written in.
#pragma once

#include <string>
#include <vector>

#include "data/tasks/task_config.h"
#include "data/tasks/task_random.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

class KeyAlphabet {
 public:
  // Throws Error(config), beginning with `where`, when the tokenizer has no single token for a symbol.
  KeyAlphabet(Alphabet alphabet, const Tokenizer& tokenizer, const std::string& where);

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  // Returns `count` different keys of `symbols` tokens each.
  std::vector<std::vector<int32_t>> draw(int64_t count, int64_t symbols, TaskRandom& random) const;
  // Returns whether `count` different keys exist.
  bool has(int64_t count, int64_t symbols) const;

 private:
  std::vector<int32_t> ids_;
};

}  // namespace quire
