// Attention to blocks; shapes and formulas in kernels/block_attention.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/block_attention.h"

namespace quire {

struct BlockAttention {
  Variable out;  // [R, T, H, Dv]
  Variable lse;  // wide [R, H, T]: log of the sum over the gates of each query
};

// settings: everything that is no variable; q, k and v are taken from the variables.
BlockAttention block_attention(Tape& tape, const Variable& q, const Variable& k, const Variable& v,
                               ops::BlockAttentionInputs settings);

// Returns the softmax over the gates of both parts: out [R, T, H, Dv] and lse.
BlockAttention join(Tape& tape, const BlockAttention& a, const BlockAttention& b);

// The context-miss token (Landmark Attention, Appendix D): an additional gate with a logit and without a value. share
// is the probability of the token and kept = 1 - share is that of all others: [R, T, H, 1], of the type of a.out. miss
// [R, T, H, 1]: its logits.
struct ContextMiss {
  Variable kept, share;
};
ContextMiss context_miss(Tape& tape, const BlockAttention& a, const Variable& miss);

}  // namespace quire
