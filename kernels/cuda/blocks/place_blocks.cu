#include "kernels/block_attention.h"
#include "kernels/block_sizes.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

struct Placing {
  const int32_t *index, *head, *length, *first, *places;
  int64_t per_row, top_k, slots, stored;  // per_row: queries and heads
};

// A thread takes a query and head. It sorts the ages of the chosen blocks in the memory that receives their slots.
__global__ void place_blocks_kernel(int32_t* slot, int32_t* rotation, int32_t* own, int64_t queries, Placing in) {
  for (int64_t query = first_element(); query < queries; query += element_stride()) {
    const int64_t row = query / in.per_row;
    const int32_t* const from = in.index + query * in.top_k;
    int32_t* const ages = slot + query * in.top_k;
    const int64_t carried = in.length[row];
    const int64_t first = in.first[row];
    int count = 0;
    for (int64_t n = 0; n < in.top_k; ++n) {
      own[query * in.top_k + n] = from[n] >= in.stored ? static_cast<int32_t>(from[n] - in.stored) : -1;
      if (from[n] < first || from[n] >= in.stored || in.slots <= 0) continue;
      const auto age = static_cast<int32_t>(from[n] - first);
      int to = count++;
      for (; to > 0 && ages[to - 1] > age; --to) ages[to] = ages[to - 1];
      ages[to] = age;
    }
    for (int64_t n = 0; n < in.top_k; ++n) {
      int64_t place = -1;
      int64_t back = -1;
      if (n < count) {
        const int64_t age = ages[n];
        place = (in.head[row] - carried + age) % in.slots;
        if (place < 0) place += in.slots;
        place += row * in.slots;
        back = carried - age;
        if (in.places != nullptr) back = back <= count ? count - n : in.places[row] - n;
      }
      ages[n] = static_cast<int32_t>(place);
      rotation[query * in.top_k + n] = static_cast<int32_t>(back);
    }
  }
}

void place_blocks(const Tensor& slot, const Tensor& rotation, const Tensor& own, const ops::BlockPlacing& in) {
  check_place_blocks(slot, rotation, own, in);
  if (in.index.numel() == 0) return;
  const int64_t top_k = in.index.dim(3);
  const int64_t queries = in.index.numel() / top_k;
  const Placing placing{in.index.data<int32_t>(),
                        in.head.data<int32_t>(),
                        in.length.data<int32_t>(),
                        in.first.data<int32_t>(),
                        in.places.defined() ? in.places.data<int32_t>() : nullptr,
                        in.index.dim(1) * in.index.dim(2),
                        top_k,
                        in.slots,
                        in.stored};
  launch(place_blocks_kernel, blocks_for(queries), kBlock, 0, slot.data<int32_t>(), rotation.data<int32_t>(),
         own.data<int32_t>(), queries, placing);
}

}  // namespace

void bind_place_blocks() {
  ops::place_blocks.bind(DeviceKind::cuda, place_blocks);
}

}  // namespace quire::cuda
