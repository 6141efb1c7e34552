// Grouped cross-attention; shapes and formulas in kernels/grouped_cross_attention.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/grouped_cross_attention.h"

namespace quire {

// Returns [R, T, H, Dv]. settings: everything that is no variable; q, keys, values and weight are taken from the
// variables. Keys and values may be constants of another type than q's.
Variable grouped_cross_attention(Tape& tape, const Variable& q, const Variable& keys, const Variable& values,
                                 const Variable& weight, ops::GroupedCrossAttentionInputs settings);

}  // namespace quire
