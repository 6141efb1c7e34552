// Attention to blocks; shapes and formulas in kernels/block_attention.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/block_attention.h"

namespace quire {

struct BlockAttention {
  Variable out;  // [R, T, H, Dv]
  Variable lse;  // wide [R, H, T]: log of the sum over the gates of each query
};

// settings: what is no variable; q, k and v are taken from the variables.
BlockAttention block_attention(Tape& tape, const Variable& q, const Variable& k, const Variable& v,
                               ops::BlockAttentionInputs settings);

// Attention to stored blocks, which are constant. settings: what is no variable.
BlockAttention stored_attention(Tape& tape, const Variable& q, ops::StoredAttentionInputs settings);

// The softmax over the gates of both, of which each has one part: out [R, T, H, Dv] and lse.
BlockAttention join(Tape& tape, const BlockAttention& a, const BlockAttention& b);

// The context-miss token (Landmark Attention, Appendix D): a gate more, with a logit and without a value. share of the
// token and kept = 1 - share, which is left to the others: [R, T, H, 1], of the type of a.out. miss [R, T, H, 1]: its
// logits.
struct ContextMiss {
  Variable kept, share;
};
ContextMiss context_miss(Tape& tape, const BlockAttention& a, const Variable& miss);

}  // namespace quire
