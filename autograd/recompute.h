// Activation recomputation (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): a part of the network
// keeps only its inputs and runs a second time when its gradient is needed.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace quire {

// Runs on the tape it is given. `again` is true in the second run, which must compute the same values: it draws the
// same random numbers, reads the same state as the first one, writes no state and counts nothing. Everything that the
// function refers to besides its inputs must live until the sweep is over.
using RecomputedFunction =
    std::function<std::vector<Variable>(Tape& tape, const std::vector<Variable>& inputs, bool again)>;

// Returns function(inputs), with the same gradients as a plain call, bit for bit, including those of parameters inside.
// On a tape that does not record it is a plain call. Inputs may be undefined.
std::vector<Variable> recompute(Tape& tape, const std::vector<Variable>& inputs, const RecomputedFunction& function);

}  // namespace quire
