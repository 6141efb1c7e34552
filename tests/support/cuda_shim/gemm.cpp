// Products in plain loops, where cuBLASLt would be.
#include "kernels/checks.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

template <typename To, typename From>
void multiply(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o, int64_t inner) {
  using Sum = Wide<From>;
  const int64_t x_row = o.transpose_a ? 1 : a.stride(-2);
  const int64_t x_inner = o.transpose_a ? a.stride(-2) : 1;
  const int64_t y_inner = o.transpose_b ? 1 : b.stride(-2);
  const int64_t y_column = o.transpose_b ? b.stride(-2) : 1;
  const bool several = c.rank() == 3;
  for (int64_t product = 0; product < (several ? c.dim(0) : 1); ++product) {
    const From* x = a.data<From>() + (several ? product * a.stride(0) : 0);
    const From* y = b.data<From>() + (several ? product * b.stride(0) : 0);
    To* z = c.data<To>() + (several ? product * c.stride(0) : 0);
    for (int64_t i = 0; i < c.dim(-2); ++i) {
      for (int64_t j = 0; j < c.dim(-1); ++j) {
        To& to = z[i * c.stride(-2) + j];
        Sum sum = o.accumulate ? wide(to) : Sum{0};
        for (int64_t k = 0; k < inner; ++k) {
          sum += wide(x[i * x_row + k * x_inner]) * wide(y[k * y_inner + j * y_column]);
        }
        if (o.bias.defined()) sum += o.bias.data<Sum>()[j];
        to = static_cast<To>(sum);
      }
    }
  }
}

void gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options) {
  const int64_t inner = check_gemm(c, a, b, options);
  const Tensor& product = options.pre.defined() ? options.pre : c;
  if (a.dtype() == DType::bf16 && c.dtype() == DType::f32) {
    multiply<float, bfloat16>(product, a, b, options, inner);
  } else {
    dispatch(c.dtype(), [&](auto type) { multiply<decltype(type), decltype(type)>(product, a, b, options, inner); });
  }
  if (options.activation) ops::activation(c, product, *options.activation);
}

}  // namespace

void bind_gemm() {
  ops::gemm.bind(DeviceKind::cuda, gemm);
}

}  // namespace quire::cuda
