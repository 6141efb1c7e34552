// The gradients of listed attention with weights that are sums over queries: of keys, values and weights. They go over
// the queries of a list, which follow each other in a row, and over the lists that name a block.
#pragma once

#include "kernels/cuda/listed/listed_mma.h"

namespace quire::cuda {

template <typename T>
struct ListGradients {
  using A = Wide<T>;
  const T* dout;
  const A *lse, *inner;     // [R, H, T, K]
  const int32_t* ranges;    // [R, G, 2]
  const int32_t* of_block;  // the blocks of all entries of lists, sorted; null where no gradient of keys is asked for
  const int32_t* of_entry;  // the entries themselves
  int64_t entries;
};

// The queries [first, end) of a list that names a block as its n-th; the list is in row `row`.
struct ListedBlock {
  int64_t row, entry;
  int n, first, end;
};

// Returns the i-th of the sorted entries.
template <typename T, typename S>
__device__ inline ListedBlock listed_block(const ListedOperands<T, S>& in, const ListGradients<T>& back, int64_t i) {
  const int64_t entry = back.of_entry[i];
  const int64_t list = entry / in.chosen;
  return {list / in.lists, entry, static_cast<int>(entry % in.chosen), back.ranges[2 * list],
          back.ranges[2 * list + 1]};
}

// Returns the first of the sorted entries whose block is not below `block`.
template <typename T>
__device__ inline int64_t first_entry(const ListGradients<T>& back, int64_t block) {
  int64_t low = 0;
  int64_t high = back.entries;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (back.of_block[middle] < block) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Computes dkeys, dvalues and dweight, those that are defined.
void list_gradients(const ops::ListedAttentionGradients& gradients, const ListBackwardScratch& scratch,
                    const Tensor& dout, const Tensor& lse, const ops::ListedAttentionInputs& in,
                    const ListedSizes& sizes);
void key_gradients_on_tensor_cores(const Tensor& dkeys, const Tensor& dvalues, const ListedInBf16& in,
                                   const ListGradients<bfloat16>& back);

}  // namespace quire::cuda
