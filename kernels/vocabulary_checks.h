// Checks that the kernels of all devices make on the operands of kernels/pointwise.h, kernels/axis.h and
// kernels/choice.h. Each throws Error(internal) that names the operation.
#pragma once

#include <initializer_list>

#include "kernels/op.h"

namespace quire {

// Throws unless every defined operand has the shape of out.
void check_same_shape(const char* op, const Tensor& out, std::initializer_list<const Tensor*> operands);
void check_one_type(const char* op, std::initializer_list<const Tensor*> tensors);
// Throws unless a defined mask is u8 and has the shape of `in`.
void check_mask(const char* op, const Tensor& mask, const Tensor& in);
void check_binary(const Tensor& out, const Tensor& a, const Tensor& b);
void check_binary_backward(const Tensor& da, const Tensor& db, const Tensor& dout, const Tensor& a, const Tensor& b);
void check_select(const Tensor& out, const Tensor& mask, const Tensor& a, const Tensor& b);
// A contiguous tensor as [outer, size, inner], where size is that of the given axis.
struct AxisSizes {
  int64_t outer, size, inner;
};
AxisSizes axis_sizes(const char* op, const Tensor& in, int axis);
AxisSizes check_sum_axis(const Tensor& out, const Tensor& in, int axis);
AxisSizes check_cumulative_sum(const Tensor& out, const Tensor& in, int axis);
void check_softmax(const Tensor& out, const Tensor& lse, const Tensor& in, const Tensor& mask);
void check_softmax_backward(const Tensor& din, const Tensor& dout, const Tensor& dlse, const Tensor& out);
void check_top_k(const Tensor& index, const Tensor& in, const Tensor& mask);
void check_rows_of_tables(const Tensor& rows, const Tensor& index, int64_t per_batch);

}  // namespace quire
