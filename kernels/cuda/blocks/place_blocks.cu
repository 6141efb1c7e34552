#include "kernels/block_attention.h"
#include "kernels/block_sizes.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

struct Placing {
  const int32_t *index, *head, *length, *first, *places, *age, *count;
  int64_t per_row, top_k, slots, stored, own_blocks;  // per_row: lists of a row, of the outputs

  __device__ int64_t end(int64_t row) const { return int64_t{first[row]} + length[row]; }
  __device__ bool is_stored(int64_t row, int64_t candidate) const {
    return candidate >= first[row] && candidate < stored && slots > 0;
  }
  __device__ int32_t slot(int64_t row, int64_t back) const {
    return static_cast<int32_t>(row * slots + ((head[row] - back) % slots + slots) % slots);
  }
};

// A thread takes a list. It sorts the ages of the chosen blocks in the memory that receives their slots.
__global__ void place_blocks_kernel(int32_t* slot, int32_t* rotation, int32_t* own, int64_t lists, Placing in) {
  for (int64_t list = first_element(); list < lists; list += element_stride()) {
    const int64_t row = list / in.per_row;
    const int32_t* const from = in.index + list * in.top_k;
    int32_t* const ages = slot + list * in.top_k;
    int count = 0;
    for (int64_t n = 0; n < in.top_k; ++n) {
      own[list * in.top_k + n] = from[n] >= in.stored ? static_cast<int32_t>(from[n] - in.stored) : -1;
      if (!in.is_stored(row, from[n])) continue;
      const auto age = static_cast<int32_t>(in.end(row) - from[n]);
      int to = count++;
      for (; to > 0 && ages[to - 1] < age; --to) ages[to] = ages[to - 1];
      ages[to] = age;
    }
    for (int64_t n = 0; n < in.top_k; ++n) {
      int64_t back = n < count ? ages[n] : -1;
      ages[n] = n < count ? in.slot(row, back) : -1;
      if (n < count && in.places != nullptr) back = back <= count ? count - n : in.places[row] - n;
      rotation[list * in.top_k + n] = static_cast<int32_t>(back);
    }
    for (int64_t n = 0; n < in.top_k && in.own_blocks > 0; ++n) {
      if (from[n] < in.stored) continue;
      ages[count] = static_cast<int32_t>(-2 - (row * in.own_blocks + from[n] - in.stored));
      rotation[list * in.top_k + count++] = 0;
    }
  }
}

__global__ void place_lists_kernel(int32_t* slot, int32_t* rotation, int32_t* own, int64_t entries, Placing in) {
  for (int64_t i = first_element(); i < entries; i += element_stride()) {
    const int64_t row = i / (in.per_row * in.top_k);
    const int32_t given = in.age[row * in.top_k + i % in.top_k];
    int64_t candidate = given > 0 ? in.end(row) - given : -1;
    if (i / in.top_k % in.per_row > 0) candidate = in.index[i - (row + 1) * in.top_k];
    const int64_t age = in.end(row) - candidate;
    slot[i] = in.is_stored(row, candidate) ? in.slot(row, age) : -1;
    own[i] = candidate >= in.stored ? static_cast<int32_t>(row * (in.per_row - 1) + candidate - in.stored) : -1;
    rotation[i] = candidate >= 0 ? static_cast<int32_t>(age + in.count[row]) : 0;
  }
}

void place_blocks(const Tensor& slot, const Tensor& rotation, const Tensor& own, const ops::BlockPlacing& in) {
  check_place_blocks(slot, rotation, own, in);
  if (slot.numel() == 0) return;
  const int64_t top_k = slot.dim(-1);
  const int64_t lists = slot.numel() / top_k;
  const Placing placing{in.index.data<int32_t>(),
                        in.head.data<int32_t>(),
                        in.length.data<int32_t>(),
                        in.first.data<int32_t>(),
                        data_or_null<int32_t>(in.places),
                        data_or_null<int32_t>(in.age),
                        data_or_null<int32_t>(in.count),
                        lists / slot.dim(0),
                        top_k,
                        in.slots,
                        in.stored,
                        in.own_blocks};
  const auto kernel = in.age.defined() ? place_lists_kernel : place_blocks_kernel;
  const int64_t threads = in.age.defined() ? slot.numel() : lists;
  launch(kernel, blocks_for(threads), kBlock, 0, slot.data<int32_t>(), rotation.data<int32_t>(), own.data<int32_t>(),
         threads, placing);
}

}  // namespace

void bind_place_blocks() {
  ops::place_blocks.bind(DeviceKind::cuda, place_blocks);
}

}  // namespace quire::cuda
