#include "layers/pass/auxiliary_loss.h"

#include "autograd/functions/basic.h"

namespace quire {

Variable add_loss(const Forward& f, LossTermId term, const Variable& sum, const Variable& y) {
  if (f.loss_sums.defined()) {
    const Tensor total = f.loss_sums.slice(0, term.index, term.index + 1);
    ops::add(total, total, sum.value(), 1, 1);
  }
  if (!f.training || term.weight == 0) return y;
  return with_loss(f.tape, y, sum, term.weight * f.loss_seeds[static_cast<size_t>(term.index)]);
}

}  // namespace quire
