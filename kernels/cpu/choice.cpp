#include "kernels/choice.h"

#include <numeric>

#include "kernels/cpu/common.h"
#include "kernels/strided.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cpu {

namespace {

// Returns true when the element at i comes before the one at j.
template <typename W>
bool comes_before(const W* x, int32_t i, int32_t j) {
  const bool i_is_nan = x[i] != x[i];
  const bool j_is_nan = x[j] != x[j];
  if (i_is_nan != j_is_nan) return i_is_nan;
  if (!i_is_nan && x[i] != x[j]) return x[i] > x[j];
  return i < j;
}

// Writes the first `found` of `places`, in order. Few are kept sorted while the others pass by.
template <typename W>
void take_first(int32_t* to, int64_t found, const W* x, int32_t* places, int64_t count) {
  constexpr int64_t kFew = 32;
  const auto before = [x](int32_t i, int32_t j) { return comes_before(x, i, j); };
  if (found > kFew) {
    std::partial_sort(places, places + found, places + count, before);
    std::copy_n(places, found, to);
    return;
  }
  for (int64_t n = 0; n < count && found > 0; ++n) {
    const int32_t place = places[n];
    const int64_t kept = std::min(n, found);
    if (kept == found && !before(place, to[found - 1])) continue;
    int64_t at = std::min(kept, found - 1);
    for (; at > 0 && before(place, to[at - 1]); --at) to[at] = to[at - 1];
    to[at] = place;
  }
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
    for_rows(in.numel() / width, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t at[2];
        walk.find(row * width, at);
        const Wide<T>* const x = widened(in.data<T>() + at[0], width, 0);
        int32_t* const places = scratch<int32_t>(1, width);
        int64_t count = 0;
        for (int64_t i = 0; i < width; ++i) {
          if (mask.defined() && mask.data<uint8_t>()[at[1] + i * mask_stride] == 0) continue;
          places[count++] = static_cast<int32_t>(i);
        }
        const int64_t found = std::min(k, count);
        int32_t* const to = index.data<int32_t>() + row * k;
        take_first(to, found, x, places, count);
        std::fill(to + found, to + k, -1);
      }
    });
  });
}

void rows_of_tables(const Tensor& rows, const Tensor& index, int64_t per_batch) {
  check_rows_of_tables(rows, index, per_batch);
  const int64_t count = index.dim(1);
  for (int64_t i = 0; i < index.numel(); ++i) {
    const int32_t place = index.data<int32_t>()[i];
    if (place >= per_batch) {
      fail(ErrorKind::internal, "rows_of_tables: index {} is outside a table of {} rows", place, per_batch);
    }
    rows.data<int32_t>()[i] = place < 0 ? -1 : static_cast<int32_t>(place + i / count * per_batch);
  }
}

}  // namespace

void bind_choice() {
  ops::top_k.bind(DeviceKind::cpu, top_k);
  ops::rows_of_tables.bind(DeviceKind::cpu, rows_of_tables);
}

}  // namespace quire::cpu
