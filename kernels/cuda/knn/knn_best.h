// The best entries of a query in their total order (score, then age), and the merge of more entries into them.
#pragma once

#include "kernels/cuda/runtime.h"

namespace quire::cuda {

// Orders two entries: numbers before NaN, larger scores before smaller ones, older entries before younger ones.
template <typename A>
__device__ inline bool comes_before(A a, int a_entry, A b, int b_entry) {
  if (a > b) return true;
  if (b > a) return false;
  const bool a_is_number = a == a;
  const bool b_is_number = b == b;
  if (a_is_number != b_is_number) return a_is_number;
  return a_entry < b_entry;
}

// Merges `count` staged scores, at most 32 kStaged, into the `kept` best ones, which are in order. All lanes of a
// warp call it. Kernels call it at sixteen places of an unrolled loop. It is not inlined there, because nvcc takes two
// minutes for sixteen copies.
template <int kStaged, typename A>
__device__ __attribute__((noinline)) void merge(A* best, int32_t* entries, int kept, const A* staged,
                                                const int32_t* staged_entries, int count, int top_k) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  __syncwarp();
  A own[kStaged];
  int32_t own_entry[kStaged];
  int place[kStaged];
#pragma unroll
  for (int u = 0; u < kStaged; ++u) {
    const int at = lane + u * kWarp;
    place[u] = top_k;
    own[u] = 0;
    own_entry[u] = 0;
    if (at >= count) continue;
    own[u] = staged[at];
    own_entry[u] = staged_entries[at];
    // Binary search among the best.
    int low = 0;
    int high = kept;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (comes_before(best[middle], entries[middle], own[u], own_entry[u])) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    place[u] = low;
    for (int t = 0; t < count; ++t) {
      if (comes_before(staged[t], staged_entries[t], own[u], own_entry[u])) ++place[u];
    }
  }
  // The old ones move back, beginning with the last, so that only slots are overwritten that no thread reads any more.
  for (int first = (kept - 1) / kWarp * kWarp; first >= 0 && kept > 0; first -= kWarp) {
    const int at = first + lane;
    A value = 0;
    int32_t entry = 0;
    int to = top_k;
    if (at < kept) {
      value = best[at];
      entry = entries[at];
      to = at;
      for (int t = 0; t < count; ++t) {
        if (comes_before(staged[t], staged_entries[t], value, entry)) ++to;
      }
    }
    __syncwarp();
    if (to < top_k) {
      best[to] = value;
      entries[to] = entry;
    }
    __syncwarp();
  }
#pragma unroll
  for (int u = 0; u < kStaged; ++u) {
    if (place[u] >= top_k) continue;
    best[place[u]] = own[u];
    entries[place[u]] = own_entry[u];
  }
  __syncwarp();
}

}  // namespace quire::cuda
