#include "kernels/vocabulary_checks.h"

#include "core/check.h"
#include "kernels/checks.h"

namespace quire {

void check_same_shape(const char* op, const Tensor& out, std::initializer_list<const Tensor*> operands) {
  for (const Tensor* operand : operands) {
    QUIRE_CHECK(!operand->defined() || operand->shape() == out.shape(), "{}: {} beside {}; broadcast it first", op,
                operand->shape().to_string(), out.shape().to_string());
  }
}

void check_one_type(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    if (first == nullptr) first = tensor;
    QUIRE_CHECK(tensor->dtype() == first->dtype(), "{}: {} beside {}; convert one of them", op,
                name_of(tensor->dtype()), name_of(first->dtype()));
  }
}

void check_mask(const char* op, const Tensor& mask, const Tensor& in) {
  if (!mask.defined()) return;
  check_same_shape(op, in, {&mask});
  QUIRE_CHECK(mask.dtype() == DType::u8, "{}: the mask is {}, not u8", op, name_of(mask.dtype()));
}

void check_binary(const Tensor& out, const Tensor& a, const Tensor& b) {
  check_same_shape("binary", out, {&a, &b});
  check_one_type("binary", {&out, &a, &b});
}

void check_binary_backward(const Tensor& da, const Tensor& db, const Tensor& dout, const Tensor& a, const Tensor& b) {
  check_same_shape("binary_backward", dout, {&a, &b, &da, &db});
  check_one_type("binary_backward", {&dout, &a, &b, &da, &db});
  for (const Tensor* to : {&da, &db}) {
    QUIRE_CHECK(!to->defined() || to->is_contiguous(), "binary_backward: {} is not contiguous",
                to->shape().to_string());
  }
}

void check_select(const Tensor& out, const Tensor& mask, const Tensor& a, const Tensor& b) {
  check_same_shape("select", out, {&mask, &a, &b});
  check_one_type("select", {&out, &a, &b});
  check_mask("select", mask, out);
}

AxisSizes check_sum_axis(const Tensor& out, const Tensor& in, int axis) {
  const AxisSizes sizes = axis_sizes("sum_axis", in, axis);
  QUIRE_CHECK(out.is_contiguous() && out.dtype() == in.dtype() && out.numel() == sizes.outer * sizes.inner,
              "sum_axis: {} {} from axis {} of {} {}", name_of(out.dtype()), out.shape().to_string(), axis,
              name_of(in.dtype()), in.shape().to_string());
  return sizes;
}

AxisSizes check_cumulative_sum(const Tensor& out, const Tensor& in, int axis) {
  require_alike("cumulative_sum", {&out, &in});
  return axis_sizes("cumulative_sum", in, axis);
}

AxisSizes axis_sizes(const char* op, const Tensor& in, int axis) {
  QUIRE_CHECK(axis >= 0 && axis < in.rank() && in.is_contiguous(), "{}: axis {} of {}", op, axis,
              in.shape().to_string());
  AxisSizes sizes{1, in.dim(axis), 1};
  for (int i = 0; i < in.rank(); ++i) {
    if (i < axis) sizes.outer *= in.dim(i);
    if (i > axis) sizes.inner *= in.dim(i);
  }
  return sizes;
}

void check_softmax(const Tensor& out, const Tensor& lse, const Tensor& in, const Tensor& mask) {
  QUIRE_CHECK(in.rank() >= 1 && in.is_contiguous(), "softmax: {} must be contiguous with a last axis",
              in.shape().to_string());
  if (out.defined()) require_alike("softmax", {&out, &in});
  QUIRE_CHECK(!lse.defined() || (lse.is_contiguous() && lse.dtype() == wide_type(in.dtype()) &&
                                 lse.numel() * in.dim(-1) == in.numel()),
              "softmax: lse {} {} for {}", name_of(lse.dtype()), lse.shape().to_string(), in.shape().to_string());
  check_mask("softmax", mask, in);
}

void check_softmax_backward(const Tensor& din, const Tensor& dout, const Tensor& dlse, const Tensor& out) {
  require_alike("softmax_backward", {&din, &out});
  if (dout.defined()) require_alike("softmax_backward", {&din, &dout});
  QUIRE_CHECK(
      !dlse.defined() ||
          (dlse.is_contiguous() && dlse.dtype() == wide_type(out.dtype()) && dlse.numel() * out.dim(-1) == out.numel()),
      "softmax_backward: dlse {} {} for {}", name_of(dlse.dtype()), dlse.shape().to_string(), out.shape().to_string());
}

void check_top_k(const Tensor& index, const Tensor& in, const Tensor& mask) {
  QUIRE_CHECK(in.rank() >= 1 && in.is_contiguous() && index.is_contiguous() && index.dtype() == DType::i32 &&
                  index.rank() == in.rank() && index.numel() * in.dim(-1) == in.numel() * index.dim(-1),
              "top_k: {} places {} from {}", name_of(index.dtype()), index.shape().to_string(), in.shape().to_string());
  check_mask("top_k", mask, in);
}

void check_rows_of_tables(const Tensor& rows, const Tensor& index, int64_t per_batch) {
  require_alike("rows_of_tables", {&rows, &index});
  QUIRE_CHECK(index.rank() == 2 && index.dtype() == DType::i32, "rows_of_tables: {} {} is not i32 [B, M]",
              name_of(index.dtype()), index.shape().to_string());
  QUIRE_CHECK(index.dim(0) * per_batch < int64_t{1} << 31, "rows_of_tables: {} tables of {} rows; at most 2^31 rows",
              index.dim(0), per_batch);
}

}  // namespace quire
