// Vectors stored as i8 with one scale each.
#include "kernels/cpu/knn_memory.h"
#include "kernels/knn_scale.h"

namespace quire::cpu {

namespace {

// Calls function(X{}) with the type of the numbers that are stored or read back.
template <typename Function>
void dispatch_values(const char* op, DType dtype, Function&& function) {
  if (dtype == DType::bf16) {
    function(bfloat16{});
  } else {
    dispatch(op, dtype, function);
  }
}

void quantize_vectors(const Tensor& out, const Tensor& scale, const Tensor& x) {
  check_quantized("quantize_vectors", out, scale, x);
  const int64_t width = x.dim(-1);
  dispatch_values("quantize_vectors", x.dtype(), [&](auto type) {
    using X = decltype(type);
    using T = std::conditional_t<std::is_same_v<X, double>, double, float>;
    for_rows(scale.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const X* const from = x.data<X>() + n * width;
        int8_t* const to = out.data<int8_t>() + n * width;
        double largest = 0;
        for (int64_t d = 0; d < width; ++d) {
          const double size = std::abs(static_cast<double>(from_stored<T>(from[d])));
          largest = size > largest || size != size ? size : largest;
          if (largest != largest) break;
        }
        const bfloat16 factor = scale_reaching(largest);
        scale.data<bfloat16>()[n] = factor;
        const double step = static_cast<float>(factor);
        for (int64_t d = 0; d < width; ++d) {
          // The quotient in f64 rounds to a tie only where it is one.
          to[d] = step > 0 ? static_cast<int8_t>(std::nearbyint(from_stored<T>(from[d]) / step)) : int8_t{0};
        }
      }
    });
  });
}

void dequantize_vectors(const Tensor& out, const Tensor& in, const Tensor& scale) {
  check_quantized("dequantize_vectors", in, scale, out);
  const int64_t width = out.dim(-1);
  dispatch_values("dequantize_vectors", out.dtype(), [&](auto type) {
    using X = decltype(type);
    for_rows(scale.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const auto factor = static_cast<float>(scale.data<bfloat16>()[n]);
        for (int64_t i = n * width; i < (n + 1) * width; ++i) {
          out.data<X>()[i] = static_cast<X>(factor * static_cast<float>(in.data<int8_t>()[i]));
        }
      }
    });
  });
}

}  // namespace

void bind_knn_storage() {
  ops::quantize_vectors.bind(DeviceKind::cpu, quantize_vectors);
  ops::dequantize_vectors.bind(DeviceKind::cpu, dequantize_vectors);
}

}  // namespace quire::cpu
