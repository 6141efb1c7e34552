#include "autograd/recompute.h"

namespace quire {

std::vector<Variable> recompute(Tape& tape, const std::vector<Variable>& inputs, const RecomputedFunction& function) {
  if (!tape.recording()) return function(tape, inputs, false);
  // The first run tells which parameters the function reads; the record names them like its own inputs.
  Tape first(TapeMode::noting);
  std::vector<Tensor> values;
  for (const Variable& output : function(first, inputs, false)) {
    if (output.needs_gradient()) first.note({output.gradient()});  // an input that the function returns unchanged
    values.push_back(output.value());
  }
  return tape.results("recompute", std::move(values), first.noted(),
                      [inputs, function](const std::vector<Tensor>& gradients) {
                        Tape second;
                        second.backward(function(second, inputs, true), gradients);
                      });
}

}  // namespace quire
