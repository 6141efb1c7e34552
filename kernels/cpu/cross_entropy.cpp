#include "kernels/cross_entropy.h"

#include "kernels/checks.h"
#include "kernels/cpu/lanes.h"

namespace quire::cpu {

namespace {

void cross_entropy(const Tensor& nll, const Tensor& dlogits, const Tensor& logits, const Tensor& targets,
                   const Tensor& mask, const Tensor& factor, const ops::CrossEntropyTerms& terms) {
  const int64_t rows = logits.dim(0);
  const int64_t width = logits.dim(1);
  check_cross_entropy(nll, dlogits, logits, targets, mask, factor, terms);
  const int32_t* target = targets.data<int32_t>();
  const uint8_t* counted = mask.data<uint8_t>();
  for (int64_t m = 0; m < rows; ++m) {
    if (counted[m] != 0 && (target[m] < 0 || target[m] >= width)) {
      fail(ErrorKind::data, "cross_entropy: target {} is outside the vocabulary of {}", target[m], width);
    }
  }
  dispatch("cross_entropy", logits.dtype(), [&](auto type) {
    using T = decltype(type);
    const T weight = dlogits.defined() ? static_cast<T>(factor.data<double>()[0]) : T{0};
    const T of_target = weight * static_cast<T>(1 - terms.smoothing);
    const T of_all = weight * static_cast<T>(terms.smoothing / static_cast<double>(width));
    T* const log_sums = terms.log_sum.defined() ? terms.log_sum.data<T>() : nullptr;
    T* const uniform = terms.uniform.defined() ? terms.uniform.data<T>() : nullptr;
    for_rows(rows, width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        const ConstArrayView<T> x(logits.data<T>() + m * logits.stride(0), width);
        const T top = x.maxCoeff();
        const T log_sum = top + std::log((x - top).exp().sum());
        nll.data<T>()[m] = counted[m] != 0 ? log_sum - x[target[m]] : T{0};
        if (log_sums != nullptr) log_sums[m] = counted[m] != 0 ? log_sum : T{0};
        if (uniform != nullptr)
          uniform[m] = counted[m] != 0 ? log_sum - sum_of_line(x.data(), width) / static_cast<T>(width) : T{0};
        if (!dlogits.defined()) continue;
        ArrayView<T> dx(dlogits.data<T>() + m * dlogits.stride(0), width);
        if (counted[m] == 0) {
          dx.setZero();
          continue;
        }
        const T of_sum = weight * (1 + static_cast<T>(2 * terms.log_sum_weight) * log_sum);
        by_lanes(
            dx.data(), width, [&](const auto& a) { return of_sum * (a - log_sum).exp(); }, x.data());
        if (terms.smoothing > 0) dx -= of_all;
        dx[target[m]] -= of_target;
      }
    });
  });
}

void sum_all(const Tensor& total, const Tensor& in) {
  dispatch_stored("sum_all", in.dtype(), [&](auto type) {
    using T = decltype(type);
    double sum = 0;
    for (const T *x = in.data<T>(), *end = x + in.numel(); x != end; ++x) sum += static_cast<double>(wide(*x));
    total.data<double>()[0] = sum;
  });
}

}  // namespace

void bind_cross_entropy() {
  ops::cross_entropy.bind(DeviceKind::cpu, cross_entropy);
  ops::sum_all.bind(DeviceKind::cpu, sum_all);
}

}  // namespace quire::cpu
