// Runs a part of a model and, in training, again when its gradient is needed. Values that its layers take from earlier
// ones are inputs, those they leave for later ones are outputs.
#pragma once

#include <functional>

#include "layers/pass/forward.h"

namespace quire {

class Recomputed {
 public:
  using Function = std::function<Variable(const Forward& f, const Variable& x)>;

  // Called before and after the layers of the part are made.
  void begin(const Declarations& declared) { first_use_ = declared.value_uses.size(); }
  void end(const Declarations& declared);

  Variable operator()(const Forward& f, const Variable& x, const Function& function) const;

 private:
  size_t first_use_ = 0;
  std::vector<ValueId> reads_, leaves_;
};

}  // namespace quire
