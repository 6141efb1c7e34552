// Tiles of 64 x 64 pairs: their products, sums over them, and the shared memory that operands pass through.
//
// A thread owns pairs 16 apart in both directions. Vectors of features pass through shared memory 32 at a time, so that
// any size fits.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/random.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

inline constexpr int kTile = 64;  // queries, keys or distances
inline constexpr int kSide = 16;  // a block has 16 x 16 threads; thread (y, x) owns pairs (y + 16 i, x + 16 j)
inline constexpr int kThreads = kSide * kSide;
inline constexpr int kEach = kTile / kSide;
inline constexpr int kQuad = 4;  // features that are read at once
inline constexpr int kDepth = 32;
// Lines of operands and of weights in shared memory: eight lines read at once cause no bank conflict.
inline constexpr int kDepthStride = kDepth + kQuad;
inline constexpr int kWeightStride = kTile + kQuad;
inline constexpr int kBand = 2 * kTile - 1;
// Random numbers come in groups of four distances; 64 distances touch at most 17 groups. A mask group has one bit per
// number of a group: whether dropout keeps its probability.
inline constexpr int kMaskGroups = kTile / 4 + 1;
using MaskGroup = uint8_t;
// Returns number 0..3 of a group. An indexed array would be placed in memory instead of registers.
__device__ inline uint32_t of_group(const std::array<uint32_t, 4>& group, uint32_t number) {
  const uint32_t first = number % 2 == 0 ? group[0] : group[1];
  const uint32_t second = number % 2 == 0 ? group[2] : group[3];
  return number < 2 ? first : second;
}

// Values of one thread, for its pairs or for its 4 lines and 4 features.
template <typename A>
using Pairs = A[kEach][kEach];

template <typename T>
struct alignas(kQuad * sizeof(T) < 16 ? kQuad * sizeof(T) : 16) Quad {
  T x[kQuad];
};

__device__ inline int thread_x() {
  return static_cast<int>(threadIdx.x) % kSide;
}
__device__ inline int thread_y() {
  return static_cast<int>(threadIdx.x) / kSide;
}

// Says whether lines of `size` features of all tensors begin where a quad may be read.
template <typename T>
bool in_quads(int64_t size, std::initializer_list<const Tensor*> tensors) {
  if (size % kQuad != 0) return false;
  for (const Tensor* tensor : tensors) {
    if (tensor->defined() && reinterpret_cast<uintptr_t>(tensor->raw()) % alignof(Quad<T>) != 0) return false;
  }
  return true;
}

// Returns features [first, first + 4) of a vector of `size`, with zeros behind its end and where there is no vector.
template <typename T>
__device__ inline Quad<Wide<T>> load_quad(const T* line, int first, int size, bool quads) {
  Quad<Wide<T>> to{};
  if (line == nullptr) return to;
  if (quads) {
    const Quad<T> from = *reinterpret_cast<const Quad<T>*>(line + first);
    for (int i = 0; i < kQuad; ++i) to.x[i] = wide(from.x[i]);
  } else {
    for (int i = 0; i < kQuad; ++i) {
      if (first + i < size) to.x[i] = wide(line[first + i]);
    }
  }
  return to;
}
template <typename T>
__device__ inline void store_quad(T* line, int first, int size, bool quads, const Wide<T> (&values)[kQuad],
                                  Wide<T> factor) {
  if (quads) {
    Quad<T> to;
    for (int i = 0; i < kQuad; ++i) to.x[i] = narrow<T>(values[i] * factor);
    *reinterpret_cast<Quad<T>*>(line + first) = to;
  } else {
    for (int i = 0; i < kQuad; ++i) {
      if (first + i < size) line[first + i] = narrow<T>(values[i] * factor);
    }
  }
}

// Fills to[line][f] = load(line, first + f), a quad at a time, for features below `size`.
template <int kWidth, int kStride, typename A, typename Load>
__device__ inline void fill_lines(A* to, int lines, int first, int size, Load load) {
  constexpr int kQuads = kWidth / kQuad;
  for (int item = static_cast<int>(threadIdx.x); item < lines * kQuads; item += kThreads) {
    const int line = item / kQuads;
    const int f = item % kQuads * kQuad;
    if (first + f < size) *reinterpret_cast<Quad<A>*>(to + line * kStride + f) = load(line, first + f);
  }
}

// The shared memory of a block. Operands of products over features and values that are summed take turns in the same
// memory.
template <typename A>
struct TileMemory {
  A* content;       // [64, 32] of scale * (q + u), or dout
  A* direct;        // [64, 32] of keys, values or r
  A* band;          // [127, 32] of r, keys or values
  A* position;      // [64, 32] of scale * (q + v_bias)
  A* values;        // [64, 64]
  A* weights;       // [64, 64]
  int* nearest;     // [64]
  int* farthest;    // [64]
  MaskGroup* mask;  // [64, kMaskGroups]

  // Tiles differ in two ways: they pair queries with keys or with distances, and may have Transformer-XL terms.
  static constexpr __host__ __device__ int lines(bool by_distance, bool relative) {
    const int with_keys = kTile + (by_distance ? kBand : kTile);
    return with_keys + (relative ? kTile + (by_distance ? kTile : kBand) : 0);
  }
  static size_t bytes(bool by_distance, bool relative, bool dropout) {
    const auto numbers = static_cast<size_t>(lines(by_distance, relative) * kDepthStride + kTile * kWeightStride);
    return numbers * sizeof(A) + 2 * kTile * sizeof(int) + (dropout ? kTile * kMaskGroups * sizeof(MaskGroup) : 0);
  }

  __device__ TileMemory(bool by_distance, bool relative) {
    A* const begin = dynamic_shared<A>();
    static_assert(kTile * kTile <= 2 * kTile * kDepthStride);
    values = begin;
    content = begin;
    A* const keys = content + kTile * kDepthStride;
    position = keys + (by_distance ? kBand : kTile) * kDepthStride;
    A* const terms = position + kTile * kDepthStride;
    direct = by_distance ? terms : keys;
    band = by_distance ? keys : terms;
    weights = begin + lines(by_distance, relative) * kDepthStride;
    nearest = reinterpret_cast<int*>(weights + kTile * kWeightStride);
    farthest = nearest + kTile;
    mask = reinterpret_cast<MaskGroup*>(farthest + kTile);
  }
};

// Computes sums[a][c] += x[a] . y[c] over `features` features in shared memory.
template <typename A>
__device__ inline void add_direct(Pairs<A>& sums, const A* x, const A* y, int features) {
  const A* const left = x + thread_y() * kDepthStride;
  const A* const right = y + thread_x() * kDepthStride;
  for (int f = 0; f < features; f += kQuad) {
    Quad<A> l[kEach];
    Quad<A> r[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      l[i] = *reinterpret_cast<const Quad<A>*>(left + i * kSide * kDepthStride + f);
      r[i] = *reinterpret_cast<const Quad<A>*>(right + i * kSide * kDepthStride + f);
    }
#pragma unroll
    for (int n = 0; n < kQuad; ++n) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] += l[i].x[n] * r[j].x[n];
      }
    }
  }
}

// Computes sums[a][c] += x[a] . band[a - c + 63].
template <typename A>
__device__ inline void add_band(Pairs<A>& sums, const A* x, const A* band, int features) {
  constexpr int kDiagonals = 2 * kEach - 1;
  const A* const left = x + thread_y() * kDepthStride;
  const A* const right = band + (thread_y() - thread_x() + kSide - 1) * kDepthStride;
  for (int f = 0; f < features; f += kQuad) {
    Quad<A> l[kEach];
    Quad<A> r[kDiagonals];
#pragma unroll
    for (int i = 0; i < kEach; ++i) l[i] = *reinterpret_cast<const Quad<A>*>(left + i * kSide * kDepthStride + f);
#pragma unroll
    for (int i = 0; i < kDiagonals; ++i) {
      r[i] = *reinterpret_cast<const Quad<A>*>(right + i * kSide * kDepthStride + f);
    }
#pragma unroll
    for (int n = 0; n < kQuad; ++n) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] += l[i].x[n] * r[i - j + kEach - 1].x[n];
      }
    }
  }
}

// Computes totals[i][n] += sum over x < 64 of weights[y + 16 i][x] * values[x][4 thread_x + n]. Features from
// `features` on stay as they are.
template <typename A>
__device__ inline void add_weighted(Pairs<A>& totals, const A* weights, const A* values, int features) {
  if (kQuad * thread_x() >= features) return;
  const A* const left = weights + thread_y() * kWeightStride;
  const A* const right = values + thread_x() * kQuad;
  for (int x = 0; x < kTile; x += kQuad) {
    Quad<A> w[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) w[i] = *reinterpret_cast<const Quad<A>*>(left + i * kSide * kWeightStride + x);
#pragma unroll
    for (int n = 0; n < kQuad; ++n) {
      const Quad<A> v = *reinterpret_cast<const Quad<A>*>(right + (x + n) * kTile);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kQuad; ++j) totals[i][j] += w[i].x[n] * v.x[j];
      }
    }
  }
}

// Stores weights[c][a] = pairs[a][c].
template <typename A>
__device__ inline void store_transposed(A* weights, const Pairs<A>& pairs) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      weights[(thread_x() + j * kSide) * kWeightStride + thread_y() + i * kSide] = pairs[i][j];
    }
  }
}

// Adds the weighted values of a tile, 64 features at a time, to a thread's totals; load(line, feature) returns quads.
// Weights lie in shared memory already; a barrier comes before they are read, and one after.
template <int kChunks, typename A, typename Load>
__device__ inline void add_values(Pairs<A> (&totals)[kChunks], const TileMemory<A>& memory, int first, int size,
                                  Load load) {
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int begin = first + chunk * kTile;
    if (chunk > 0 && begin >= size) break;
    fill_lines<kTile, kTile>(memory.values, kTile, begin, size, load);
    __syncthreads();
    add_weighted(totals[chunk], memory.weights, memory.values, size - begin);
    __syncthreads();
  }
}

// Computes sums = x . y for all pairs over `size` features; the loads return quads of a query and of a key. It ends
// with a barrier; one must also stand between earlier reads of the operands' memory and this call.
template <typename A, typename LoadX, typename LoadY>
__device__ inline void multiply_pairs(Pairs<A>& sums, const TileMemory<A>& memory, int size, LoadX load_x,
                                      LoadY load_y) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) sums[i][j] = 0;
  }
  for (int begin = 0; begin < size; begin += kDepth) {
    fill_lines<kDepth, kDepthStride>(memory.content, kTile, begin, size, load_x);
    fill_lines<kDepth, kDepthStride>(memory.direct, kTile, begin, size, load_y);
    __syncthreads();
    add_direct(sums, memory.content, memory.direct, size - begin < kDepth ? size - begin : kDepth);
    __syncthreads();
  }
}

// A thread keeps the sums of at most this many chunks of 64 features in registers. Wider vectors are cut into slices,
// each with its own blocks.
inline constexpr int kMaxChunks = 2;
template <typename T>
int chunks_for(int64_t size) {
  // f64 serves to check results, and has no registers for more.
  return size <= kTile || std::is_same_v<T, double> ? 1 : kMaxChunks;
}
// Calls function(std::integral_constant<int, chunks>).
template <typename T, typename Function>
void with_chunks(int64_t size, Function&& function) {
  if (chunks_for<T>(size) == 1) return function(std::integral_constant<int, 1>{});
  if constexpr (!std::is_same_v<T, double>) function(std::integral_constant<int, kMaxChunks>{});
}

}  // namespace quire::cuda
