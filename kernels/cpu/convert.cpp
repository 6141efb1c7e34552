#include "core/bfloat16.h"
#include "kernels/checks.h"
#include "kernels/cpu/common.h"
#include "kernels/elementwise.h"

namespace quire::cpu {

namespace {

template <typename To, typename From>
To as(From x) {
  if constexpr (std::is_same_v<To, bfloat16>) {
    return bfloat16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<From, bfloat16>) {
    return static_cast<To>(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <typename Function>
void dispatch_storage(DType dtype, Function&& function) {
  if (dtype == DType::bf16) {
    function(bfloat16{});
  } else {
    dispatch("convert", dtype, function);
  }
}

void convert(const Tensor& out, const Tensor& in) {
  check_convert(out, in);
  dispatch_storage(out.dtype(), [&](auto to) {
    dispatch_storage(in.dtype(), [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      To* y = out.data<To>();
      const From* x = in.data<From>();
      for_elements(out.numel(), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) y[i] = as<To>(x[i]);
      });
    });
  });
}

}  // namespace

void bind_convert() {
  ops::convert.bind(DeviceKind::cpu, convert);
}

}  // namespace quire::cpu
