#include "kernels/choice.h"

#include <array>
#include <numeric>

#include "kernels/cpu/lanes.h"
#include "kernels/strided.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cpu {

namespace {

constexpr int64_t kFew = 32;

// Returns true when the element at i comes before the one at j.
template <typename W>
bool comes_before(const W* x, int32_t i, int32_t j) {
  const bool i_is_nan = x[i] != x[i];
  const bool j_is_nan = x[j] != x[j];
  if (i_is_nan != j_is_nan) return i_is_nan;
  if (!i_is_nan && x[i] != x[j]) return x[i] > x[j];
  return i < j;
}

// Writes the indices of the K largest of `count` values x, in order, for small K: they are kept sorted while the others
// pass by.
template <typename W>
void take_few(int32_t* to, int64_t k, const W* x, int64_t count) {
  constexpr int64_t kTogether = 16;
  std::array<W, kFew> best;
  // The earlier one of equal values stays in front.
  const auto take = [&](int64_t n, int64_t kept) {
    const W value = x[n];
    int64_t at = std::min(kept, k - 1);
    for (; at > 0; --at) {
      const W before = best[static_cast<size_t>(at - 1)];
      if (!(value > before || (value != value && before == before))) break;
      best[static_cast<size_t>(at)] = before;
      to[at] = to[at - 1];
    }
    best[static_cast<size_t>(at)] = value;
    to[at] = static_cast<int32_t>(n);
  };
  for (int64_t n = 0; n < k; ++n) take(n, n);
  for (int64_t n = k; n < count; n += kTogether) {
    const int64_t end = std::min(n + kTogether, count);
    const W last = best[static_cast<size_t>(k - 1)];
    int larger = 0;  // or not a number
    for (int64_t i = n; i < end; ++i) larger += x[i] <= last ? 0 : 1;
    for (int64_t i = n; i < end && larger > 0; ++i) {
      const W smallest = best[static_cast<size_t>(k - 1)];
      if (x[i] > smallest || (x[i] != x[i] && smallest == smallest)) take(i, k);
    }
  }
}

// As take_few for any K.
template <typename W>
void take(int32_t* to, int64_t k, const W* x, int64_t count) {
  if (k == 0) return;
  if (k <= kFew) return take_few(to, k, x, count);
  int32_t* const order = scratch<int32_t>(3, count);
  std::iota(order, order + count, 0);
  std::partial_sort(order, order + k, order + count, [x](int32_t i, int32_t j) { return comes_before(x, i, j); });
  std::copy_n(order, k, to);
}

void top_k(const Tensor& index, const Tensor& in, const Tensor& mask) {
  check_top_k(index, in, mask);
  const int64_t width = in.dim(-1);
  const int64_t k = index.dim(-1);
  if (width == 0) {
    std::fill_n(index.data<int32_t>(), index.numel(), -1);
    return;
  }
  const Strided<2> walk({&in, &mask});
  const int64_t mask_stride = mask.defined() ? mask.stride(-1) : 0;
  dispatch_stored("top_k", in.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    for_rows(in.numel() / width, width, [&](int64_t begin, int64_t end) {
      int32_t* const places = scratch<int32_t>(1, width);
      W* const values = scratch<W>(2, width);
      for (int64_t row = begin; row < end; ++row) {
        int64_t at[2];
        walk.find(row * width, at);
        const W* const x = widened(in.data<T>() + at[0], width, 0);
        const uint8_t* const kept = mask.defined() ? mask.data<uint8_t>() + at[1] : nullptr;
        const KeptRun run = kept_run(kept, mask_stride, width);
        const W* from = x + run.first;
        if (!run.whole()) {
          int64_t count = 0;
          for (int64_t i = run.first; i < run.last; ++i) {
            if (kept[i * mask_stride] == 0) continue;
            places[count] = static_cast<int32_t>(i);
            values[count++] = x[i];
          }
          from = values;
        }
        const int64_t found = std::min(k, run.count);
        int32_t* const to = index.data<int32_t>() + row * k;
        take(to, found, from, run.count);
        for (int64_t i = 0; i < found; ++i) {
          to[i] = run.whole() ? to[i] + static_cast<int32_t>(run.first) : places[to[i]];
        }
        std::fill(to + found, to + k, -1);
      }
    });
  });
}

void rows_of_tables(const Tensor& rows, const Tensor& index, int64_t per_batch) {
  check_rows_of_tables(rows, index, per_batch);
  const int64_t count = index.dim(1);
  for (int64_t table = 0; table < index.dim(0); ++table) {
    const int32_t* const places = index.data<int32_t>() + table * count;
    int32_t* const to = rows.data<int32_t>() + table * count;
    const auto first = static_cast<int32_t>(table * per_batch);
    int32_t last = -1;
    for (int64_t i = 0; i < count; ++i) {
      to[i] = places[i] < 0 ? -1 : places[i] + first;
      last = std::max(last, places[i]);
    }
    if (last >= per_batch) {
      fail(ErrorKind::internal, "rows_of_tables: index {} is outside a table of {} rows", last, per_batch);
    }
  }
}

}  // namespace

void bind_choice() {
  ops::top_k.bind(DeviceKind::cpu, top_k);
  ops::rows_of_tables.bind(DeviceKind::cpu, rows_of_tables);
}

}  // namespace quire::cpu
