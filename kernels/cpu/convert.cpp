#include "core/bfloat16.h"
#include "kernels/checks.h"
#include "kernels/cpu/common.h"
#include "kernels/elementwise.h"

namespace quire::cpu {

namespace {

void convert(const Tensor& out, const Tensor& in) {
  check_convert(out, in);
  dispatch_stored("convert", out.dtype(), [&](auto to) {
    dispatch_stored("convert", in.dtype(), [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      To* y = out.data<To>();
      const From* x = in.data<From>();
      for_elements(out.numel(), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) y[i] = narrow<To>(static_cast<Wide<To>>(wide(x[i])));
      });
    });
  });
}

}  // namespace

void bind_convert() {
  ops::convert.bind(DeviceKind::cpu, convert);
}

}  // namespace quire::cpu
