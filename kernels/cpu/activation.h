// The kernels of activations, for products that apply one: called here and not through the slots, their bytes and time
// count once, as the product's.
#pragma once

#include "kernels/elementwise.h"

namespace quire::cpu {

// As the operations of these names do.
void activation(const Tensor& out, const Tensor& in, ops::Activation kind);
void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ops::Activation kind);

}  // namespace quire::cpu
