// Attention to retrieved entries of an external memory; formulas in kernels/knn.h. The memory and the choice of entries
// are constant.
#pragma once

#include "autograd/functions/attention.h"
#include "kernels/knn.h"

namespace quire {

// q [R, T, H, D], scaled; index i32 [R, T, H, K]. A query without entries gets zero. lse, when given, receives the
// log-sum-exp [R, H, T].
Variable knn_attention(Tape& tape, const Variable& q, const Tensor& index, const ops::KnnMemory& memory,
                       Tensor* lse = nullptr);
// Returns one softmax over local keys (as attention()) and retrieved entries. memory_share, when given, receives the
// probability of the retrieved entries, wide [R, H, T].
Variable joint_attention(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& settings,
                         const Variable& q, const Tensor& index, const ops::KnnMemory& memory,
                         Tensor* memory_share = nullptr);
// g a + (1 - g) b with g = sigmoid(bias[h] + content[n, h]); rows with open[r] = 0 keep b. content [R T, H] and open u8
// [R] may be undefined.
Variable gate_heads(Tape& tape, const Variable& a, const Variable& b, const Variable& bias, const Variable& content,
                    const Tensor& open);

}  // namespace quire
