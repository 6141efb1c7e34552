// Attention to lists of blocks; shapes and formulas in kernels/listed_attention.h.
#pragma once

#include "autograd/functions/blocks.h"
#include "kernels/listed_attention.h"

namespace quire {

// The operands beside q that may need gradients. Those that are not defined are taken from the settings.
struct ListedVariables {
  Variable keys, values, own_keys, own_values, weight;
};

// settings: everything that is no variable. With weights there is no lse. `mass`, where it is not null, receives what
// the blocks add to each query's sum, wide [R, H, T, K], without weights.
BlockAttention listed_attention(Tape& tape, const Variable& q, const ListedVariables& operands,
                                ops::ListedAttentionInputs settings, Tensor* mass = nullptr);

// Attention to blocks that are constant, without weights.
inline BlockAttention listed_attention(Tape& tape, const Variable& q, const ops::ListedAttentionInputs& settings,
                                       Tensor* mass = nullptr) {
  return listed_attention(tape, q, ListedVariables(), settings, mass);
}

// With weights: returns [R, T, H, Dv].
inline Variable listed_attention(Tape& tape, const Variable& q, const Variable& keys, const Variable& values,
                                 const Variable& weight, const ops::ListedAttentionInputs& settings) {
  return listed_attention(tape, q, {keys, values, {}, {}, weight}, settings).out;
}

}  // namespace quire
