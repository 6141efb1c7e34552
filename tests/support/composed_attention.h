// Attention composed of the functions of autograd/functions: what the fused kernels are compared with, outputs and
// gradients. It follows the formulas of kernels/attention.h, kernels/knn.h and kernels/block_attention.h with whole
// matrices of logits.
#pragma once

#include "autograd/functions/attention.h"
#include "autograd/functions/blocks.h"
#include "kernels/knn.h"

namespace quire::test {

// `lse` receives the log-sum-exp [R, H, T].
Variable composed_attention(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& settings,
                            Variable* lse = nullptr);
// Returns what out and the sum of the weights [R, H, T] are when an lse [R, H, T] was stored, rounded or not: the
// weights are exp(logit - lse). With the gradients dout and -delta of what was stored their gradients are those of
// attention.
std::vector<Variable> composed_by_lse(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& settings,
                                      const Tensor& lse);
// Returns the delta [R, H, T] of dout and out [R, T, H, Dv].
Tensor delta_of(const Tensor& dout, const Tensor& out);
Variable composed_knn_attention(Tape& tape, const Variable& q, const Tensor& index, const ops::KnnMemory& memory);
// Returns one softmax over local keys and retrieved entries.
Variable composed_joint_attention(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& settings,
                                  const Variable& q, const Tensor& index, const ops::KnnMemory& memory);

// The settings are those of block_attention().
BlockAttention composed_block_attention(Tape& tape, const Variable& q, const Variable& k, const Variable& v,
                                        const ops::BlockAttentionInputs& settings);

// Its outputs, with the root of the sum over gates in place of its log, which may be -inf: the root has finite
// differences.
std::vector<Variable> both(Tape& tape, const BlockAttention& result);

// The parts of attention, for other compositions. S = C + T keys: the ring from its oldest entry on, then the
// subsequence.
struct ComposedKeys {
  Variable logits;  // [R, T, H, S]
  Variable values;  // [R, H, S, Dv]
  Tensor mask;      // u8 [R, T, 1, S]: which of them a query sees
};
ComposedKeys composed_keys(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& settings);
// Returns the sum over S of weights [R, T, H, S] times values [R, H, S, Dv]: [R, T, H, Dv].
Variable weighted_values(Tape& tape, const Variable& weights, const Variable& values);

}  // namespace quire::test
