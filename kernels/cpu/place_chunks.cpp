#include "kernels/place_chunks.h"

#include "kernels/cpu/common.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cpu {

namespace {

void place_chunks(const Tensor& slot, const Tensor& own, const Tensor& later, const ops::ChunkPlacing& in) {
  check_place_chunks(slot, own, later, in);
  const int64_t lists = in.index.dim(1) + 1, top_k = in.index.dim(2);
  const int32_t* const index = in.index.data<int32_t>();
  const int32_t* const ages = in.age.data<int32_t>();
  for (int64_t i = 0; i < slot.numel(); ++i) {
    const int64_t row = i / (lists * top_k), list = i / top_k % lists, k = i % top_k;
    const int64_t count = in.count.data<int32_t>()[row];
    // Finds the candidate by its number; a list of an earlier subsequence names only stored chunks.
    int64_t candidate = -1;
    if (list > 0) {
      candidate = index[(row * (lists - 1) + list - 1) * top_k + k];
    } else if (ages[row * top_k + k] > 0) {
      candidate = in.stored - ages[row * top_k + k];
    }
    const bool is_stored = candidate >= 0 && candidate < in.stored;
    const bool is_own = candidate >= in.stored;
    QUIRE_CHECK(candidate < in.stored + lists - 1, "place_chunks: candidate {} of {}", candidate,
                in.stored + lists - 1);
    const int64_t age = in.stored - candidate;
    slot.data<int32_t>()[i] =
        is_stored ? static_cast<int32_t>(row * in.slots +
                                         ((in.head.data<int32_t>()[row] - age) % in.slots + in.slots) % in.slots)
                  : -1;
    own.data<int32_t>()[i] = is_own ? static_cast<int32_t>(row * (lists - 1) + candidate - in.stored) : -1;
    later.data<int32_t>()[i] = candidate >= 0 ? static_cast<int32_t>(age + count) : 0;
  }
}

}  // namespace

void bind_place_chunks() {
  ops::place_chunks.bind(DeviceKind::cpu, place_chunks);
}

}  // namespace quire::cpu
