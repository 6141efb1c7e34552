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
