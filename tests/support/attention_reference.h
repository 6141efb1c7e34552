// The attention of kernels/attention.h in plain loops over every pair of query and key, in f64. It follows the formula
// of the header and shares nothing with the kernels.
#pragma once

#include "kernels/attention.h"

namespace quire::test {

struct AttentionReference {
  Tensor out;   // [R, T, H, Dv]
  Tensor lse;   // [R, H, T]
  Tensor prob;  // [R, H, T, C + T] before dropout; key position p is column p + C
};
AttentionReference attention_reference(const ops::AttentionInputs& in);

// Returns the gradients of all defined inputs; out and lse are those that the forward pass stored, rounded or not.
ops::AttentionGradients attention_reference_gradients(const ops::AttentionInputs& in, const Tensor& dout,
                                                      const Tensor& out, const Tensor& lse);
ops::AttentionGradients attention_reference_gradients(const ops::AttentionInputs& in, const Tensor& dout);
// Returns the delta [R, H, T] of dout and out [R, T, H, Dv].
Tensor attention_delta_reference(const Tensor& dout, const Tensor& out);

}  // namespace quire::test
