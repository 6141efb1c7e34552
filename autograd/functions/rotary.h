// Rotary positions; shapes and formula in kernels/rotary.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/rotary.h"

namespace quire {

// Rotates the heads of x [R, N, H, D] by the angles of their tokens' positions. settings: table, origin and, for a
// ring, head.
Variable rotary(Tape& tape, const Variable& x, ops::RotaryInputs settings);

}  // namespace quire
