#include "kernels/choice.h"

#include <cstring>
#include <type_traits>

#include "kernels/cuda/runtime.h"
#include "kernels/strided.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cuda {

namespace {

// Returns an integer in the order of top_k: NaN is largest, and zeros are equal. It is never 0.
template <typename W>
__device__ inline auto rank_of(W value) {
  using Bits = std::conditional_t<sizeof(W) == 4, uint32_t, uint64_t>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  if (value != value) return ~Bits{0};
  const W positive = value + W{0};  // turns -0 into 0
  Bits bits;
  memcpy(&bits, &positive, sizeof bits);
  return (bits & kSign) != 0 ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | kSign);
}

// Holds an element's rank and its place; rank 0 means no element.
template <typename Rank>
struct Candidate {
  Rank rank;
  int32_t place;

  __device__ bool comes_before(const Candidate& other) const {
    return rank > other.rank || (rank == other.rank && place < other.place);
  }
};

// A warp takes a row: each round finds the first of the elements that come after the one found before.
template <typename T>
__global__ void top_k_kernel(int32_t* index, const T* in, const uint8_t* mask, int64_t mask_stride, int64_t rows,
                             int64_t width, int64_t k, Strided<2> walk) {
  using Rank = decltype(rank_of(Wide<T>{}));
  const int64_t row = first_element() / kWarp;
  const auto lane = static_cast<int64_t>(threadIdx.x % kWarp);
  const int64_t end = row < rows ? width : 0;
  int64_t at[2] = {};
  if (end > 0) walk.find(row * width, at);
  Candidate<Rank> last{static_cast<Rank>(~Rank{0}), -1};  // comes before all others
  for (int64_t round = 0; round < k; ++round) {
    Candidate<Rank> best{0, -1};
    for (int64_t i = lane; i < end; i += kWarp) {
      if (mask != nullptr && mask[at[1] + i * mask_stride] == 0) continue;
      const Candidate<Rank> here{rank_of(wide(in[at[0] + i])), static_cast<int32_t>(i)};
      if (last.comes_before(here) && here.comes_before(best)) best = here;
    }
    for (int bits = kWarp / 2; bits > 0; bits /= 2) {
      const Candidate<Rank> other{__shfl_xor_sync(kAllLanes, best.rank, bits),
                                  __shfl_xor_sync(kAllLanes, best.place, bits)};
      if (other.comes_before(best)) best = other;
    }
    if (row < rows && lane == 0) index[row * k + round] = best.place;
    last = best;  // when none was found, no later round finds one
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
