#include "autograd/recompute.h"

namespace quire {

std::vector<Variable> recompute(Tape& tape, const std::vector<Variable>& inputs, const RecomputedFunction& function) {
  if (!tape.recording()) return function(tape, inputs, false);
  // What the function reads of parameters is known after the first run: the record names them like its own inputs.
  Tape first(TapeMode::noting);
  std::vector<Tensor> values;
  for (const Variable& output : function(first, inputs, false)) {
    if (output.needs_gradient()) first.note({output.gradient()});  // an input that is handed on as it is
    values.push_back(output.value());
  }
  return tape.results("recompute", std::move(values), first.noted(),
                      [inputs, function](const std::vector<Tensor>& gradients) {
                        Tape second;
                        second.backward(function(second, inputs, true), gradients);
                      });
}

}  // namespace quire
