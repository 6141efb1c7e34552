#include "kernels/place_chunks.h"

#include "kernels/cuda/runtime.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cuda {

namespace {

struct Placing {
  const int32_t *age, *index, *head, *count;
  int64_t lists, top_k, stored, slots;  // lists: with that of the earlier subsequence
};

__global__ void place_chunks_kernel(int32_t* slot, int32_t* own, int32_t* later, int64_t entries, Placing in) {
  for (int64_t i = first_element(); i < entries; i += element_stride()) {
    const int64_t row = i / (in.lists * in.top_k);
    const int64_t list = i / in.top_k % in.lists;
    const int64_t k = i % in.top_k;
    int64_t candidate = -1;
    if (list > 0) {
      candidate = in.index[(row * (in.lists - 1) + list - 1) * in.top_k + k];
    } else if (in.age[row * in.top_k + k] > 0) {
      candidate = in.stored - in.age[row * in.top_k + k];
    }
    const int64_t age = in.stored - candidate;
    int64_t place = -1;
    if (candidate >= 0 && candidate < in.stored) {
      place = row * in.slots + ((in.head[row] - age) % in.slots + in.slots) % in.slots;
    }
    slot[i] = static_cast<int32_t>(place);
    own[i] = candidate >= in.stored ? static_cast<int32_t>(row * (in.lists - 1) + candidate - in.stored) : -1;
    later[i] = candidate >= 0 ? static_cast<int32_t>(age + in.count[row]) : 0;
  }
}

void place_chunks(const Tensor& slot, const Tensor& own, const Tensor& later, const ops::ChunkPlacing& in) {
  check_place_chunks(slot, own, later, in);
  const Placing placing{in.age.data<int32_t>(),
                        in.index.data<int32_t>(),
                        in.head.data<int32_t>(),
                        in.count.data<int32_t>(),
                        in.index.dim(1) + 1,
                        in.index.dim(2),
                        in.stored,
                        in.slots};
  launch(place_chunks_kernel, blocks_for(slot.numel()), kBlock, 0, slot.data<int32_t>(), own.data<int32_t>(),
         later.data<int32_t>(), slot.numel(), placing);
}

}  // namespace

void bind_place_chunks() {
  ops::place_chunks.bind(DeviceKind::cuda, place_chunks);
}

}  // namespace quire::cuda
