#include "kernels/checks.h"
#include "kernels/cuda/pack.h"
#include "kernels/elementwise.h"

namespace quire::cuda {

namespace {

constexpr int kDrawn = 4;  // values of one call of Philox

// A thread draws for four neighbouring values of a row, or for fewer at its end.
template <typename T>
__global__ void dropout_kernel(T* y, const T* x, const T* residual, ops::DropoutKey key, uint64_t threshold,
                               Wide<T> keep_scale, int64_t rows, int64_t tokens, int64_t width, bool aligned) {
  const int64_t groups = ceil_div(width, kDrawn);
  for (int64_t i = first_element(); i < rows * groups; i += element_stride()) {
    const int64_t m = i / groups;
    const int64_t group = i % groups;
    const auto bits = philox(key.key, key.scope, static_cast<uint32_t>(key.first_row + m / tokens),
                             static_cast<uint32_t>(m % tokens), static_cast<uint32_t>(group));
    const int64_t first = m * width + group * kDrawn;
    const auto value = [&](int lane, T in, T rest) {
      const Wide<T> kept = bits[static_cast<size_t>(lane)] >= threshold ? wide(in) * keep_scale : Wide<T>{0};
      return narrow<T>(residual == nullptr ? kept : wide(rest) + kept);
    };
    if (group * kDrawn + kDrawn <= width) {
      Pack<T, kDrawn> in = load<kDrawn>(x + first, aligned);
      Pack<T, kDrawn> rest{};
      if (residual != nullptr) rest = load<kDrawn>(residual + first, aligned);
#pragma unroll
      for (int lane = 0; lane < kDrawn; ++lane) in.value[lane] = value(lane, in.value[lane], rest.value[lane]);
      store<kDrawn>(y + first, in, aligned);
    } else {
#pragma unroll
      for (int lane = 0; lane < kDrawn; ++lane) {  // unrolled: the drawn bits stay in registers
        if (group * kDrawn + lane >= width) continue;
        y[first + lane] = value(lane, x[first + lane], residual == nullptr ? T{} : residual[first + lane]);
      }
    }
  }
}

void dropout(const Tensor& out, const Tensor& in, const Tensor& residual, const ops::DropoutKey& key) {
  check_dropout(out, in, residual);
  const int64_t rows = in.dim(0) * in.dim(1);
  const int64_t width = in.dim(2);
  const bool aligned = width % kDrawn == 0 && are_aligned({out.raw(), in.raw()}) &&
                       (!residual.defined() || are_aligned({residual.raw()}));
  // A value is kept when its bits are at least p 2^32.
  const auto threshold = static_cast<uint64_t>(key.probability * 4294967296.0);
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(dropout_kernel<T>, blocks_for(rows * ceil_div(width, kDrawn)), kBlock, 0, out.data<T>(), in.data<T>(),
           residual.defined() ? residual.data<T>() : nullptr, key, threshold, 1.0 / (1.0 - key.probability), rows,
           in.dim(1), width, aligned);
  });
}

}  // namespace

void bind_dropout() {
  ops::dropout.bind(DeviceKind::cuda, dropout);
}

}  // namespace quire::cuda
