// Vectors stored as i8 or f8 with one scale each.
#include "kernels/cpu/knn_memory.h"
#include "kernels/knn_scale.h"

namespace quire::cpu {

namespace {

// Calls function(S{}) with the type of vectors that have a scale.
template <typename Function>
void dispatch_scaled(DType dtype, Function&& function) {
  if (dtype == DType::f8) {
    function(float8{});
  } else {
    function(int8_t{});
  }
}

// Returns the number of a type that is nearest to a quotient in f64. The quotient lies exactly between two of them only
// where the real number does.
template <typename S>
S nearest(double quotient) {
  if constexpr (std::is_same_v<S, float8>) {
    return float8(quotient);
  } else {
    return static_cast<S>(std::nearbyint(quotient));
  }
}

void quantize_vectors(const Tensor& out, const Tensor& scale, const Tensor& x) {
  check_quantized("quantize_vectors", out, scale, x);
  const int64_t width = x.dim(-1);
  dispatch_stored("quantize_vectors", x.dtype(), [&](auto type) {
    dispatch_scaled(out.dtype(), [&](auto stored) {
      using X = decltype(type);
      using S = decltype(stored);
      using T = std::conditional_t<std::is_same_v<X, double>, double, float>;
      for_rows(scale.numel(), width, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          const X* const from = x.data<X>() + n * width;
          S* const to = out.data<S>() + n * width;
          double largest = 0;
          for (int64_t d = 0; d < width; ++d) {
            const double size = std::abs(static_cast<double>(from_stored<T>(from[d])));
            largest = size > largest || size != size ? size : largest;
            if (largest != largest) break;
          }
          const bfloat16 factor = scale_reaching(largest, kLargestStored<S>);
          scale.data<bfloat16>()[n] = factor;
          const double step = static_cast<float>(factor);
          for (int64_t d = 0; d < width; ++d) to[d] = step > 0 ? nearest<S>(from_stored<T>(from[d]) / step) : S{};
        }
      });
    });
  });
}

void dequantize_vectors(const Tensor& out, const Tensor& in, const Tensor& scale) {
  check_quantized("dequantize_vectors", in, scale, out);
  const int64_t width = out.dim(-1);
  dispatch_stored("dequantize_vectors", out.dtype(), [&](auto type) {
    dispatch_scaled(in.dtype(), [&](auto stored) {
      using X = decltype(type);
      using S = decltype(stored);
      for_rows(scale.numel(), width, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          const auto factor = static_cast<float>(scale.data<bfloat16>()[n]);
          for (int64_t i = n * width; i < (n + 1) * width; ++i) {
            out.data<X>()[i] = static_cast<X>(factor * static_cast<float>(in.data<S>()[i]));
          }
        }
      });
    });
  });
}

}  // namespace

void bind_knn_storage() {
  ops::quantize_vectors.bind(DeviceKind::cpu, quantize_vectors);
  ops::dequantize_vectors.bind(DeviceKind::cpu, dequantize_vectors);
}

}  // namespace quire::cpu
