// What the kernels of attention's backward pass share.
#pragma once

#include "kernels/cuda/attention/attention_tiles.h"

namespace quire::cuda {

// What backward kernels get beside the operands.
template <typename T>
struct BackwardOperands {
  using A = Wide<T>;
  const T* dout;
  const A* lse;                // [R, H, T]
  const A* delta;              // [R, H, T]: dout . out, what softmax takes away
  const VisibleRange* ranges;  // [R, tiles of queries]
};

// Gradients of the segment and of the ring; null where nobody asks.
template <typename T>
struct KeyGradients {
  T *dk, *dv, *dcache_k, *dcache_v;
  Wide<T>* sums;  // [R, H, C + T]: of the gradients of a key's logits over queries, in order of position
};

}  // namespace quire::cuda
