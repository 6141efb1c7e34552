// Combines the blocks of a model.
#pragma once

#include "layers/pass/forward.h"

namespace quire {

class Stack {
 public:
  Stack() = default;
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  virtual ~Stack() = default;
  virtual Variable operator()(const Forward& f, const Variable& x) const = 0;  // [R, T, E] -> [R, T, E]
};

}  // namespace quire
