// Products of a tile of pairs in attention to blocks, and the softmax within blocks.
#pragma once

#include "kernels/cuda/blocks/block_tiles.h"

namespace quire::cuda {

// Returns scale * q for four features of query a.
template <typename T>
__device__ inline Quad<Wide<T>> load_query(const BlockOperands<T>& in, const QueryTile& at, int a, int first) {
  const bool there = at.first + a < in.queries;
  Quad<Wide<T>> to = load_quad(there ? line_of_query(in.q, in.size, in, at, a) : nullptr, first, in.size, in.quads);
  for (int i = 0; i < kQuad; ++i) to.x[i] *= in.scale;
  return to;
}
template <typename T>
__device__ inline Quad<Wide<T>> load_gradient(const T* dout, const BlockOperands<T>& in, const QueryTile& at, int a,
                                              int first) {
  const bool there = at.first + a < in.queries;
  return load_quad(there ? line_of_query(dout, in.value_size, in, at, a) : nullptr, first, in.value_size,
                   in.value_quads);
}
// Returns four features of a key. Keys that nobody sees count as zero.
template <typename T>
__device__ inline Quad<Wide<T>> load_key(const BlockMemory& memory, const BlockOperands<T>& in, const QueryTile& at,
                                         int first_key, int c, int first) {
  const bool there = memory.keys[c] >= 0;
  return load_quad(there ? line_of_key(in.k, in.size, in, at.row, at.kv_head, first_key + c) : nullptr, first, in.size,
                   in.quads);
}
template <typename T>
__device__ inline Quad<Wide<T>> load_value(const BlockMemory& memory, const BlockOperands<T>& in, const QueryTile& at,
                                           int first_key, int c, int first) {
  const bool there = memory.keys[c] >= 0;
  return load_quad(there ? line_of_key(in.v, in.value_size, in, at.row, at.kv_head, first_key + c) : nullptr, first,
                   in.value_size, in.value_quads);
}

template <typename T>
__device__ inline void add_block_logits(Pairs<Wide<T>>& logits, const TileMemory<Wide<T>>& memory,
                                        const BlockMemory& blocks, const BlockOperands<T>& in, const QueryTile& at,
                                        int first_key) {
  multiply_pairs(
      logits, memory, in.size, [&](int a, int f) { return load_query(in, at, a, f); },
      [&](int c, int f) { return load_key(blocks, in, at, first_key, c, f); });
}
// Adds dout . v, the gradients of weights, to dw.
template <typename T>
__device__ inline void add_weight_gradients(Pairs<Wide<T>>& dw, const TileMemory<Wide<T>>& memory,
                                            const BlockMemory& blocks, const T* dout, const BlockOperands<T>& in,
                                            const QueryTile& at, int first_key) {
  multiply_pairs(
      dw, memory, in.value_size, [&](int a, int f) { return load_gradient(dout, in, at, a, f); },
      [&](int c, int f) { return load_value(blocks, in, at, first_key, c, f); });
}

// Holds a query's softmax over the regular keys of a block, and the logit of the landmark. The 16 threads of a line
// have the same values.
template <typename A>
struct BlockSoftmax {
  A top = std::numeric_limits<A>::lowest();  // finite, so that a difference is never NaN
  A sum = 0;                                 // sum of exp(logit - top)
  A inner = 0;                               // sum of exp(logit - top) * dw; after finish(), of P dw
  A gate = 0;                                // the landmark's logit
  A log_sum = 0;

  // Adds block g of a tile; the thread has some of its logits. dw is defined if kGradients.
  template <bool kGradients>
  __device__ void take(const BlockMemory& memory, int g, const A (&logits)[kEach], const A (&dw)[kEach]) {
    A largest = top;
    A mark = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int c = thread_x() + j * kSide;
      if (memory.regular_block(c) == g && logits[j] > largest) largest = logits[j];
      if (memory.landmark_block(c) == g) mark = logits[j];
    }
    largest = largest_of_line(largest);
    gate += sum_of_line(mark);
    A more = 0;
    A product = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (memory.regular_block(thread_x() + j * kSide) != g) continue;
      const A value = std::exp(logits[j] - largest);
      more += value;
      if (kGradients) product += value * dw[j];
    }
    const A correction = std::exp(top - largest);
    sum = sum * correction + sum_of_line(more);
    if (kGradients) inner = inner * correction + sum_of_line(product);
    top = largest;
  }
  // Ends the sums. `counted` says that the landmark of a block without regular keys is a gate; `log` is the logarithm
  // of the sum.
  __device__ void finish(bool counted, A log) {
    if (sum == 0) {
      if (!counted) gate = -std::numeric_limits<A>::infinity();
      inner = 0;
      return;
    }
    log_sum = top + log;
    inner /= sum;
  }
};

// Returns the softmax within a whole block of a tile.
template <bool kGradients, typename A>
__device__ inline BlockSoftmax<A> softmax_of_block(const BlockMemory& memory, int g, bool counted,
                                                   const A (&logits)[kEach], const A (&dw)[kEach]) {
  BlockSoftmax<A> softmax;
  softmax.template take<kGradients>(memory, g, logits, dw);
  softmax.finish(counted && memory.empty[g], std::log(softmax.sum));
  return softmax;
}

// Computes the softmax over all tiles of a long block. A barrier must come before BlockMemory is written again, as in
// prepare_keys. dout is null without gradients.
template <bool kGradients, typename T>
__device__ inline void softmax_of_long_block(BlockSoftmax<Wide<T>> (&lines)[kEach], const TileMemory<Wide<T>>& memory,
                                             BlockMemory& blocks, const T* dout, const BlockOperands<T>& in,
                                             const QueryTile& at, const KeyTile& tile) {
  using A = Wide<T>;
  for (int i = 0; i < kEach; ++i) lines[i] = BlockSoftmax<A>();
  KeyTile part = tile;
  for (part.begin = tile.block_begin; part.begin < tile.block_end; part.begin += kTile) {
    part.end = part.begin + kTile < tile.block_end ? part.begin + kTile : tile.block_end;
    prepare_keys(blocks, in, at.row, part);
    Pairs<A> logits;
    Pairs<A> dw;
    add_block_logits(logits, memory, blocks, in, at, part.begin);
    if constexpr (kGradients) add_weight_gradients(dw, memory, blocks, dout, in, at, part.begin);
#pragma unroll
    for (int i = 0; i < kEach; ++i) lines[i].template take<kGradients>(blocks, 0, logits[i], dw[i]);
  }
  for (int i = 0; i < kEach; ++i) lines[i].finish(false, std::log(lines[i].sum));
}

// Holds the operands that only the backward kernels need.
template <typename T>
struct BlockBackward {
  using A = Wide<T>;
  const T* dout;
  const A *lse, *dlse;  // [R, H, T]; dlse may be null
  const A* delta;       // [R, H, T]: dout . out
  A* long_blocks;       // that of BlockBackwardScratch, or null
  int max_long_blocks;
};

template <typename T>
__device__ inline Wide<T>* long_block_of(const BlockBackward<T>& back, const BlockOperands<T>& in, const QueryTile& at,
                                         int a, int line) {
  return back.long_blocks + (lse_of(in, at, a) * back.max_long_blocks + line) * kLongBlockNumbers;
}

// Holds what a query's gradients need from the forward pass.
template <typename A>
struct WholeSoftmax {
  A log_sum = 0;  // 0 where all logits are -inf: their exponentials are then zero
  A delta = 0;    // the term that the gradient of softmax subtracts: dout . out - dlse
};

template <typename T>
__device__ inline WholeSoftmax<Wide<T>> load_softmax(const BlockBackward<T>& back, const BlockOperands<T>& in,
                                                     const QueryTile& at, int a) {
  WholeSoftmax<Wide<T>> to;
  if (at.first + a >= in.queries) return to;
  const int64_t line = lse_of(in, at, a);
  to.delta = back.delta[line];
  if (back.lse[line] == -std::numeric_limits<Wide<T>>::infinity()) return to;
  to.log_sum = back.lse[line];
  if (back.dlse != nullptr) to.delta -= back.dlse[line];
  return to;
}

}  // namespace quire::cuda
