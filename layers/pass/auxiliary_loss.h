// Auxiliary losses: what layers add to the cross-entropy of the targets.
#pragma once

#include "layers/pass/forward.h"

namespace quire {

// Adds sum (f64 [1]) to that of the term and returns y. When the backward pass reaches y, it also adds the gradient of
// weight * sum / count, with the count of the whole step. y must be a value that the cross-entropy depends on. A part
// of the network that is recomputed then needs no output for its auxiliary loss.
Variable add_loss(const Forward& f, LossTermId term, const Variable& sum, const Variable& y);

}  // namespace quire
