// Token embedding and the projection to the vocabulary with its cross-entropy.
#pragma once

#include "autograd/tape.h"

namespace quire {

// out [R, T, E] = scale * table[ids [R, T]]; ids i32. Where an id is negative: zeros.
Variable embedding(Tape& tape, const Variable& table, const Tensor& ids, double scale);

struct CrossEntropy {
  Variable sum;  // f64 [1]: nats over the counted targets
  Tensor nll;    // [M] per target, 0 where the mask is 0
};
// hidden [.., E], weight [V, E], bias [V] wide or undefined, targets i32 [M], mask u8 [M]. Logits exist for one chunk
// of tokens at a time (at most kLogitsBudget of them) and never again: gradients are taken with them, scaled by `seed`,
// which is what the tape will be told for the sum. The weight's gradient is there before the backward pass, so it must
// have been cleared.
inline constexpr int64_t kLogitsBudget = int64_t{16} << 20;
CrossEntropy projection_cross_entropy(Tape& tape, const Variable& hidden, const Variable& weight, const Variable& bias,
                                      const Tensor& targets, const Tensor& mask, double seed = 1.0,
                                      int64_t logits_budget = kLogitsBudget);

}  // namespace quire
