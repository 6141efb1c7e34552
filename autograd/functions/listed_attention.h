// Attention to lists of blocks; shapes and formulas in kernels/listed_attention.h.
#pragma once

#include "autograd/functions/blocks.h"
#include "kernels/listed_attention.h"

namespace quire {

// Attention to blocks that are constant, without weights. settings: everything that is no variable. `mass`, where it is
// not null, receives what the blocks add to each query's sum, wide [R, H, T, K].
BlockAttention listed_attention(Tape& tape, const Variable& q, ops::ListedAttentionInputs settings,
                                Tensor* mass = nullptr);

// With weights: returns [R, T, H, Dv]. q, keys, values and weight of the settings are taken from the variables. Keys
// and values may be constants of another type than q's.
Variable listed_attention(Tape& tape, const Variable& q, const Variable& keys, const Variable& values,
                          const Variable& weight, ops::ListedAttentionInputs settings);

}  // namespace quire
