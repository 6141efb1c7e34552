#include "kernels/state.h"

#include "kernels/checks.h"
#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

// Entries are copied 16 bytes at a time where their size and addresses allow it, otherwise element by element.
template <typename Function>
void with_unit(const Tensor& ring, const Tensor& other, int64_t entry_bytes, Function&& function) {
  if (entry_bytes % static_cast<int64_t>(kVectorBytes) == 0 && are_aligned({ring.raw(), other.raw()})) {
    return function(Pack<uint32_t, 4>{});
  }
  switch (size_of(ring.dtype())) {
    case 8:
      return function(uint64_t{});
    case 4:
      return function(uint32_t{});
    case 2:
      return function(uint16_t{});
    default:
      return function(uint8_t{});
  }
}

int64_t bytes_of_entry(const Tensor& ring) {
  const int64_t entries = ring.dim(0) * ring.dim(1);
  return entries == 0 ? 0 : ring.bytes() / entries;
}

// A block copies one entry, which has `units` units.
template <typename Unit>
__global__ void ring_append_kernel(Unit* ring, const Unit* values, const int32_t* head, const int32_t* begin,
                                   const int32_t* count, int64_t stride, int64_t slots, int64_t tokens, int64_t units) {
  const int64_t row = blockIdx.x / tokens;
  const int64_t j = blockIdx.x % tokens;
  // An entry that a later one would overwrite is not written.
  if (j >= count[row] || j < count[row] - slots) return;
  Unit* const to = ring + (row * slots + (head[row] + j) % slots) * units;
  const Unit* const from = values + (row * tokens + begin[row] + j * stride) * units;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) to[i] = from[i];
}

void ring_append(const Tensor& ring, const Tensor& values, const Tensor& head, const Tensor& begin, const Tensor& count,
                 int64_t stride) {
  check_ring_append(ring, values);
  const int64_t entry = bytes_of_entry(ring);
  if (entry == 0) return;
  with_unit(ring, values, entry, [&](auto unit) {
    using Unit = decltype(unit);
    launch(ring_append_kernel<Unit>, dim3(static_cast<unsigned>(values.dim(0) * values.dim(1))), 4 * kWarp, 0,
           static_cast<Unit*>(ring.raw()), static_cast<const Unit*>(values.raw()), head.data<int32_t>(),
           begin.data<int32_t>(), count.data<int32_t>(), stride, ring.dim(1), values.dim(1),
           entry / static_cast<int64_t>(sizeof(Unit)));
  });
}

template <typename Unit>
__global__ void ring_gather_kernel(Unit* out, const Unit* ring, const int32_t* head, const int32_t* length,
                                   int64_t slots, int64_t count, int64_t units) {
  const int64_t row = blockIdx.x / count;
  const int64_t age = count - blockIdx.x % count;  // the newest is of age 1
  const bool valid = age <= length[row];
  Unit* const to = out + blockIdx.x * units;
  const Unit* const from = ring + (row * slots + (head[row] - age + slots) % slots) * units;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) to[i] = valid ? from[i] : Unit{};
}

void ring_gather(const Tensor& out, const Tensor& ring, const Tensor& head, const Tensor& length) {
  check_ring_gather(out, ring);
  const int64_t entry = bytes_of_entry(ring);
  if (entry == 0) return;
  with_unit(ring, out, entry, [&](auto unit) {
    using Unit = decltype(unit);
    launch(ring_gather_kernel<Unit>, dim3(static_cast<unsigned>(out.dim(0) * out.dim(1))), 4 * kWarp, 0,
           static_cast<Unit*>(out.raw()), static_cast<const Unit*>(ring.raw()), head.data<int32_t>(),
           length.data<int32_t>(), ring.dim(1), out.dim(1), entry / static_cast<int64_t>(sizeof(Unit)));
  });
}

}  // namespace

void bind_state() {
  ops::ring_append.bind(DeviceKind::cuda, ring_append);
  ops::ring_gather.bind(DeviceKind::cuda, ring_gather);
}

}  // namespace quire::cuda
