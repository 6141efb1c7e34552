// Cutting and joining what the golden files hold, and reading probabilities out of the attention operation.
#pragma once

#include "autograd/functions/attention.h"

namespace quire::test {

// Contiguous copies.
Tensor part(const Tensor& tensor, int axis, int64_t begin, int64_t end);
Tensor joined(const Tensor& a, const Tensor& b, int axis);
Tensor swapped(const Tensor& tensor, int first, int second);

// The same queries and keys with values that are one-hot in the key's position: attention's output [R, T, H, M + T]
// then is its probabilities over the newest M carried keys and those of the segment.
AttentionVariables one_hot_values(const AttentionVariables& x, const ops::AttentionInputs& settings, int64_t carried);
// [R, H, T, M + T]
Tensor probabilities(const AttentionVariables& x, const ops::AttentionInputs& settings, int64_t carried);

}  // namespace quire::test
