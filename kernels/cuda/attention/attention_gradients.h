// Types that the kernels of attention's backward pass share.
#pragma once

#include "kernels/cuda/attention/attention_tiles.h"

namespace quire::cuda {

// Holds the operands that only the backward kernels need.
template <typename T>
struct BackwardOperands {
  using A = Wide<T>;
  const T* dout;
  const A* lse;                // [R, H, T]
  const A* delta;              // [R, H, T]: dout . out, the term that the gradient of softmax subtracts
  const VisibleRange* ranges;  // [R, tiles of queries]
};

// Holds the gradients of keys and values of the segment and of the ring; null for those that nobody asked for.
template <typename T>
struct KeyGradients {
  T *dk, *dv, *dcache_k, *dcache_v;
  Wide<T>* sums;  // [R, H, C + T]: sums of the gradients of a key's logits over queries, in order of position
};

}  // namespace quire::cuda
