#include "layers/pass/recomputed.h"

#include <algorithm>

#include "autograd/recompute.h"

namespace quire {

void Recomputed::end(const Declarations& declared) {
  for (size_t i = first_use_; i < declared.value_uses.size(); ++i) {
    const ValueUse& use = declared.value_uses[i];
    const auto is_this = [&](ValueId id) { return id.index == use.id.index; };
    if (use.leaves) {
      leaves_.push_back(use.id);
    } else if (std::none_of(leaves_.begin(), leaves_.end(), is_this) &&
               std::none_of(reads_.begin(), reads_.end(), is_this)) {
      reads_.push_back(use.id);
    }
  }
}

Variable Recomputed::operator()(const Forward& f, const Variable& x, const Function& function) const {
  std::vector<Variable> inputs{x};
  for (const ValueId id : reads_) inputs.push_back(f.value(id));
  const RecomputedFunction run = [this, f, function](Tape& tape, const std::vector<Variable>& given, bool again) {
    Forward pass = f.on(tape, again);
    if (f.values) pass.values = std::make_shared<std::vector<Variable>>(f.values->size());
    for (size_t i = 0; i < reads_.size(); ++i) pass.leave_value(reads_[i], given[i + 1]);
    std::vector<Variable> outputs{function(pass, given[0])};
    for (const ValueId id : leaves_) outputs.push_back(pass.value(id));
    return outputs;
  };
  const std::vector<Variable> outputs = recompute(f.tape, inputs, run);
  for (size_t i = 0; i < leaves_.size(); ++i) f.leave_value(leaves_[i], outputs[i + 1]);
  return outputs[0];
}

}  // namespace quire
