#include "kernels/checks.h"

#include "core/check.h"

namespace quire {

void require_alike(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor& first = **tensors.begin();
  for (const Tensor* tensor : tensors) {
    QUIRE_CHECK(tensor->numel() == first.numel() && tensor->is_contiguous() && tensor->dtype() == first.dtype(),
                "{}: {} {} beside {} {}; all must be contiguous and alike", op, name_of(tensor->dtype()),
                tensor->shape().to_string(), name_of(first.dtype()), first.shape().to_string());
  }
}

int64_t check_gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o) {
  QUIRE_CHECK(a.rank() == 2 && b.rank() == 2 && c.rank() == 2, "gemm: ranks {}, {}, {}", c.rank(), a.rank(), b.rank());
  QUIRE_CHECK(a.stride(1) == 1 && b.stride(1) == 1 && c.stride(1) == 1, "gemm: inner strides must be 1");
  const int64_t k = o.transpose_a ? a.dim(0) : a.dim(1);
  QUIRE_CHECK((o.transpose_a ? a.dim(1) : a.dim(0)) == c.dim(0) && (o.transpose_b ? b.dim(0) : b.dim(1)) == c.dim(1) &&
                  (o.transpose_b ? b.dim(1) : b.dim(0)) == k,
              "gemm: {} from {}{} and {}{}", c.shape().to_string(), a.shape().to_string(),
              o.transpose_a ? " transposed" : "", b.shape().to_string(), o.transpose_b ? " transposed" : "");
  QUIRE_CHECK(a.dtype() == b.dtype() && (c.dtype() == a.dtype() || c.dtype() == wide_type(a.dtype())),
              "gemm: {} from {} and {}", name_of(c.dtype()), name_of(a.dtype()), name_of(b.dtype()));
  QUIRE_CHECK(!o.bias.defined() || (!o.accumulate && o.bias.is_contiguous() && o.bias.numel() == c.dim(1) &&
                                    o.bias.dtype() == wide_type(a.dtype())),
              "gemm: bias {} {} for {}{}", name_of(o.bias.dtype()), o.bias.shape().to_string(), c.shape().to_string(),
              o.accumulate ? " that accumulates" : "");
  return k;
}

void check_copy(const Tensor& out, const Tensor& in) {
  QUIRE_CHECK(out.shape() == in.shape() && out.dtype() == in.dtype(), "copy: {} from {}", out.shape().to_string(),
              in.shape().to_string());
}

void check_convert(const Tensor& out, const Tensor& in) {
  QUIRE_CHECK(out.numel() == in.numel() && out.is_contiguous() && in.is_contiguous(), "convert: {} from {}",
              out.shape().to_string(), in.shape().to_string());
}

void check_add_bias(const Tensor& out, const Tensor& in, const Tensor& bias) {
  require_alike("add_bias", {&out, &in});
  const int64_t width = bias.numel();
  QUIRE_CHECK(width > 0 && in.numel() % width == 0, "add_bias: {} values on rows of {}", width, in.shape().to_string());
}

}  // namespace quire
