#include "kernels/cuda/runtime.h"
#include "kernels/knn_sizes.h"

namespace quire::cuda {

namespace {

__global__ void drop_entries_kernel(int32_t* index, const uint8_t* keep, int64_t count, int64_t per_query) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    if (keep[i / per_query] == 0) index[i] = -1;
  }
}

void drop_entries(const Tensor& index, const Tensor& keep) {
  check_drop_entries(index, keep);
  if (keep.numel() == 0) return;
  launch(drop_entries_kernel, blocks_for(index.numel()), kBlock, 0, index.data<int32_t>(), keep.data<uint8_t>(),
         index.numel(), index.numel() / keep.numel());
}

}  // namespace

void bind_knn_drop() {
  ops::drop_entries.bind(DeviceKind::cuda, drop_entries);
}

}  // namespace quire::cuda
