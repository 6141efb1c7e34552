// Attention as one record with its own backward pass; shapes and formula in kernels/attention.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/attention.h"

namespace quire {

struct AttentionVariables {
  Variable q, k, v;           // [R, T, H, D], [R, T, Hk, D], [R, T, Hk, Dv]
  Variable cache_k, cache_v;  // [R, C, Hk, D or Dv]: rings; constants, or projections of carried hidden states
  Variable bias;              // [H, N]
  Variable r, u, v_bias;      // [N, H, D], [H, D], [H, D]
};

// settings: cache_head, first_visible, scale, attend_self and dropout; its tensors are taken from the variables.
Variable attention(Tape& tape, const AttentionVariables& x, ops::AttentionInputs settings);

// Parts of attention() for functions that continue the same softmax: the inputs of the kernels, gradient tensors for q
// and for the variables that need one, and a function that adds these to the variables' gradients.
ops::AttentionInputs attention_inputs(const AttentionVariables& x, ops::AttentionInputs settings);
ops::AttentionGradients attention_gradients(const AttentionVariables& x);
void give_gradients(const AttentionVariables& x, const ops::AttentionGradients& gradients);
// Runs the backward pass of local keys; out and lse are those of the whole softmax.
void add_attention_gradients(const AttentionVariables& x, const Tensor& dout, const Tensor& out, const Tensor& lse,
                             const ops::AttentionInputs& in);

// out [H, N] = table [H, B] at index i32 [N]: the T5 bias by distance from a table by bucket.
Variable gather_columns(Tape& tape, const Variable& table, const Tensor& index);

}  // namespace quire
