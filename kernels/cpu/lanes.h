// Arithmetic on a line of memory whose bits depend on the values alone. Eigen reads a line from its first aligned
// element on and computes the elements before and behind with scalar code, which adds in another order and has other
// exponentials: the same values would give other bits at another address, as another row of a batch has.
#pragma once

#include "kernels/cpu/product.h"

namespace quire::cpu {

// The elements of a line that a mask keeps.
struct KeptRun {
  int64_t first = 0, last = 0;  // the kept ones lie in [first, last)
  int64_t count = 0;
  bool whole() const { return count == last - first; }  // all of these are kept
};

// Returns the kept elements of a line; all of it without a mask.
inline KeptRun kept_run(const uint8_t* mask, int64_t stride, int64_t width) {
  KeptRun run{0, width, width};
  if (mask == nullptr) return run;
  while (run.first < width && mask[run.first * stride] == 0) ++run.first;
  while (run.last > run.first && mask[(run.last - 1) * stride] == 0) --run.last;
  run.count = 0;
  if (stride == 1) {
    for (int64_t i = run.first; i < run.last; ++i) run.count += mask[i] != 0 ? 1 : 0;
  } else {
    for (int64_t i = run.first; i < run.last; ++i) run.count += mask[i * stride] != 0 ? 1 : 0;
  }
  return run;
}

template <typename T>
T sum_of_line(const T* x, int64_t count) {
  // Eigen begins at the first element of what is no plain memory.
  return (ConstArrayView<T>(x, count) * T{1}).sum();
}

// Sets to[i] = f(in[i]...) for each i. f is called with whole vectors, as Eigen arrays.
template <typename T, typename Function, typename... Ins>
void by_lanes(T* to, int64_t count, const Function& f, const Ins*... in) {
  constexpr int64_t kWidth = kLanes<T>;
  using Lanes = Eigen::Array<T, kLanes<T>, 1>;
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    Eigen::Map<Lanes>(to + i) = f(Eigen::Map<const Lanes>(in + i)...);
  }
  if (i == count) return;
  const auto rest = [&](const T* from) {
    Lanes padded = Lanes::Zero();
    std::copy(from + i, from + count, padded.data());
    return padded;
  };
  const Lanes last = [&](const auto&... padded) -> Lanes { return f(padded...); }(rest(in)...);
  std::copy_n(last.data(), count - i, to + i);
}

}  // namespace quire::cpu
