#include "kernels/choice.h"

#include "kernels/cuda/runtime.h"
#include "kernels/strided.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cuda {

namespace {

// An element and its place; place -1: none.
template <typename W>
struct Candidate {
  W value;
  int32_t place;

  // In the order of top_k: NaN, then larger values, then smaller places.
  __device__ bool comes_before(const Candidate& other) const {
    if (place < 0 || other.place < 0) return other.place < 0 && place >= 0;
    const bool is_nan = value != value;
    const bool other_is_nan = other.value != other.value;
    if (is_nan != other_is_nan) return is_nan;
    if (!is_nan && value != other.value) return value > other.value;
    return place < other.place;
  }
};

// A warp a row: each round finds the first of the elements that come after the one found before.
template <typename T>
__global__ void top_k_kernel(int32_t* index, const T* in, const uint8_t* mask, int64_t mask_stride, int64_t rows,
                             int64_t width, int64_t k, Strided<2> walk) {
  using W = Wide<T>;
  const int64_t row = first_element() / kWarp;
  const auto lane = static_cast<int64_t>(threadIdx.x % kWarp);
  const int64_t end = row < rows ? width : 0;
  int64_t at[2] = {};
  if (end > 0) walk.find(row * width, at);
  Candidate<W> last{0, -1};
  bool is_done = false;
  for (int64_t round = 0; round < k; ++round) {
    Candidate<W> best{0, -1};
    for (int64_t i = lane; i < end; i += kWarp) {
      if (mask != nullptr && mask[at[1] + i * mask_stride] == 0) continue;
      const Candidate<W> here{wide(in[at[0] + i]), static_cast<int32_t>(i)};
      if ((last.place < 0 || last.comes_before(here)) && here.comes_before(best)) best = here;
    }
    for (int bits = kWarp / 2; bits > 0; bits /= 2) {
      const Candidate<W> other{__shfl_xor_sync(kAllLanes, best.value, bits),
                               __shfl_xor_sync(kAllLanes, best.place, bits)};
      if (other.comes_before(best)) best = other;
    }
    is_done = is_done || best.place < 0;
    if (row < rows && lane == 0) index[row * k + round] = is_done ? -1 : best.place;
    last = best;
  }
}

void top_k(const Tensor& index, const Tensor& in, const Tensor& mask) {
  check_top_k(index, in, mask);
  const int64_t k = index.dim(-1);
  const int64_t rows = k == 0 ? 0 : index.numel() / k;
  const Strided<2> walk({&in, &mask});
  dispatch(in.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(top_k_kernel<T>, dim3(static_cast<unsigned>(ceil_div(rows, kBlock / kWarp))), kBlock, 0,
           index.data<int32_t>(), in.data<T>(), mask.defined() ? mask.data<uint8_t>() : nullptr,
           mask.defined() ? mask.stride(-1) : 0, rows, in.dim(-1), k, walk);
  });
}

__global__ void rows_of_tables_kernel(int32_t* rows, const int32_t* index, int64_t count, int64_t of_batch,
                                      int64_t per_batch, int64_t all) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t place = index[i];
    const int64_t row = place < per_batch ? place + i / of_batch * per_batch : all;
    rows[i] = static_cast<int32_t>(place < 0 ? -1 : row);
  }
}

void rows_of_tables(const Tensor& rows, const Tensor& index, int64_t per_batch) {
  check_rows_of_tables(rows, index, per_batch);
  launch(rows_of_tables_kernel, blocks_for(index.numel()), kBlock, 0, rows.data<int32_t>(), index.data<int32_t>(),
         index.numel(), index.dim(1), per_batch, index.dim(0) * per_batch);
}

}  // namespace

void bind_choice() {
  ops::top_k.bind(DeviceKind::cuda, top_k);
  ops::rows_of_tables.bind(DeviceKind::cuda, rows_of_tables);
}

}  // namespace quire::cuda
