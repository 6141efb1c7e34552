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
  // Error(config), beginning with `where`, when the tokenizer has no token of its own for a symbol.
  KeyAlphabet(Alphabet alphabet, const Tokenizer& tokenizer, const std::string& where);

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  // Keys of `symbols` tokens that differ from one another.
  std::vector<std::vector<int32_t>> draw(int64_t count, int64_t symbols, TaskRandom& random) const;
  // Whether `count` different keys exist.
  bool has(int64_t count, int64_t symbols) const;

 private:
  std::vector<int32_t> ids_;
};

}  // namespace quire
