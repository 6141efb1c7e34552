// The kernels of activations, for products that apply one. They are called directly and not through the slots, so that
// their bytes and time count once, as part of the product.
#pragma once

#include "kernels/elementwise.h"

namespace quire::cpu {

// They compute the same as the operations of these names.
void activation(const Tensor& out, const Tensor& in, ops::Activation kind);
void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ops::Activation kind);

}  // namespace quire::cpu
