// Losses that layers add beside the nats of the targets.
#pragma once

#include "layers/forward.h"

namespace quire {

// Adds sum (f64 [1]) to the term's and returns y with the gradient of weight * sum / count, the count being that of the
// whole step. y is something that the loss depends on anyway: the gradient does not wait for the sweep to be seeded
// with it, so a part of the network that is recomputed needs no further output.
Variable add_loss(const Forward& f, LossTermId term, const Variable& sum, const Variable& y);

}  // namespace quire
