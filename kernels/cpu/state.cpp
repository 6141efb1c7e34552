#include "kernels/state.h"

#include <cstring>

#include "kernels/checks.h"
#include "kernels/cpu/common.h"

namespace quire::cpu {

namespace {

void ring_append(const Tensor& ring, const Tensor& values, const Tensor& head, const Tensor& begin, const Tensor& count,
                 int64_t stride) {
  const int64_t rows = ring.dim(0);
  const int64_t slots = ring.dim(1);
  const int64_t entry = ring.numel() / std::max<int64_t>(rows * slots, 1) * static_cast<int64_t>(size_of(ring.dtype()));
  const int64_t tokens = values.dim(1);
  check_ring_append(ring, values);
  char* to = static_cast<char*>(ring.raw());
  const char* from = static_cast<const char*>(values.raw());
  parallel_for(rows, [&](int64_t r) {
    const int64_t first = begin.data<int32_t>()[r];
    int64_t slot = head.data<int32_t>()[r];
    for (int64_t left = count.data<int32_t>()[r], t = first; left > 0;) {
      // Copies up to the end of the ring, then from its start; adjacent entries are copied together.
      const int64_t run = stride == 1 ? std::min(left, slots - slot) : 1;
      std::memcpy(to + (r * slots + slot) * entry, from + (r * tokens + t) * entry, static_cast<size_t>(run * entry));
      slot = (slot + run) % slots;
      t += run * stride;
      left -= run;
    }
  });
}

void ring_gather(const Tensor& out, const Tensor& ring, const Tensor& head, const Tensor& length) {
  const int64_t rows = ring.dim(0);
  const int64_t slots = ring.dim(1);
  const int64_t count = out.dim(1);
  const int64_t entry = ring.numel() / std::max<int64_t>(rows * slots, 1) * static_cast<int64_t>(size_of(ring.dtype()));
  check_ring_gather(out, ring);
  char* to = static_cast<char*>(out.raw());
  const char* from = static_cast<const char*>(ring.raw());
  parallel_for(rows, [&](int64_t r) {
    const int64_t valid = std::min<int64_t>(length.data<int32_t>()[r], count);
    char* row = to + r * count * entry;
    std::memset(row, 0, static_cast<size_t>((count - valid) * entry));
    int64_t slot = (head.data<int32_t>()[r] - valid + slots) % slots;
    for (int64_t done = 0; done < valid;) {
      const int64_t run = std::min(valid - done, slots - slot);
      std::memcpy(row + (count - valid + done) * entry, from + (r * slots + slot) * entry,
                  static_cast<size_t>(run * entry));
      slot = (slot + run) % slots;
      done += run;
    }
  });
}

}  // namespace

void bind_state() {
  ops::ring_append.bind(DeviceKind::cpu, ring_append);
  ops::ring_gather.bind(DeviceKind::cpu, ring_gather);
}

}  // namespace quire::cpu
