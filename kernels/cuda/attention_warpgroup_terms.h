// Terms of Transformer-XL in attention by warpgroups (attention_warpgroup.h). A tile of 64 keys and the 64 queries of a
// warpgroup are 127 distances apart, of which 63 are those of the tile before: r comes in blocks of 64 distances, block
// `tile` for the first warpgroup and the one before for the second. Query a and term n of a block, distance first - n,
// belong to key a + n of the tile, or to key a + n - 64 of the next one: where queries stay, products with a block are
// made once. Through shared memory they move to the columns of their keys.
//
// Queries are q + u, and what v_bias - u adds to a distance is a bias of it: scale * ((q + u).(k + r[d]) + bias[d]).
#pragma once

#include "kernels/cuda/attention_warpgroup.h"

namespace quire::cuda {

inline constexpr int kTermTile = 64;
inline constexpr int kTermColumns = kTermTile / kMmaColumns;
// Features of heads in the backward pass: more do not fit in shared memory.
inline constexpr int kWidestRelative = 64;

// The term in a line of a block, such that a lane's products are those with terms 8 * (lane % 4) + term_of_product:
// they go to 32 banks.
struct TermOfLine {
  __device__ int operator()(int line) const { return (line & 32) | (line & 6) << 2 | (line >> 2 & 6) | (line & 1); }
};
__device__ inline int first_term_of_lane() {
  return lane_of_warp() % 4 * 8;
}
// Of sum i, or 2 + i, of columns n.
__device__ constexpr int term_of_product(int n, int i) {
  return n / 4 * 32 + n % 4 * 2 + i;
}

// The key in a line of a tile from which gradients go back to terms, such that a lane's products are those with keys
// lane % 4 + key_of_product: neighbouring lanes have neighbouring keys.
struct KeyOfLine {
  __device__ int operator()(int line) const { return (line & 56) | (line & 1) << 2 | (line >> 1 & 3); }
};
__device__ constexpr int key_of_product(int n, int i) {
  return n * 8 + i * 4;
}

// A warp's 16 lines of a panel, as left matrices in registers of several products.
template <int kLines>
__device__ inline void load_left(LeftFragment (&to)[64 / kMmaDepth], const SharedPanels<64, kLines>& from) {
  const SharedLines<64> lines{from.begin};  // the same places
  const int first_line = warp_of_block() * kMmaRows % kLines;
#pragma unroll
  for (int n = 0; n < 64 / kMmaDepth; ++n) to[n] = lines.left(first_line, n * kMmaDepth);
}
// sums = or, when kAdd, += these lines times lines of y.
template <bool kAdd = false, int kSteps, typename Right, int kColumns>
__device__ inline void multiply_left_later(SumFragment (&sums)[kColumns], const LeftFragment (&left)[kSteps],
                                           const Right& y) {
#pragma unroll
  for (int n = 0; n < kSteps; ++n) multiply_later(sums, left[n], y.along(0, n * kMmaDepth), kAdd || n > 0);
}

// Blocks of terms in shared memory, and what their distances add to logits, before scale. A number is that of a block,
// from -2 on, where the tiles follow each other.
template <int kWidth, int kPlaces>
struct TermBlocks {
  using Lines = SharedPanels<kWidth, kTermTile>;
  static constexpr int kValues = kPlaces * Lines::kValues;
  static constexpr int kWords = kPlaces * kTermTile;
  bfloat16* begin;
  float* biases;

  __device__ Lines lines(int number) const { return {begin + (number + kPlaces) % kPlaces * Lines::kValues}; }
  __device__ float* bias(int number) const { return biases + (number + kPlaces) % kPlaces * kTermTile; }

  // Distances first_distance, first_distance - 1, ...
  __device__ void fetch(int number, const AttentionOperands<bfloat16>& in, const Place& at, int first_distance) const {
    copy_tile(lines(number), terms_of(in, at), in.entries - 1 - first_distance, 0, in.entries, TermOfLine{});
    if (threadIdx.x < kTermTile) {
      const int distance = first_distance - static_cast<int>(threadIdx.x);
      bias(number)[threadIdx.x] = distance >= 0 ? bias_of(in, at, distance) : 0.0F;
    }
  }
};

// What moves from terms to keys: a warp's 16 queries by 64 keys, which are in the order of KeyOfLine if they are not
// kInOrder. kApart values lie between queries so that neither stores nor loads of a warp meet in a bank.
template <int kApart, bool kInOrder = true>
struct TermStrip {
  static constexpr int kStride = kTermTile + kApart;
  static constexpr int kWords = kMmaRows * kStride;
  float* begin;  // of the warp

  __device__ float* line(int half) const { return begin + row_of_sum(2 * half) * kStride; }
  // Of the warpgroup.
  static __device__ int query(int half) { return warp_of_block() % kGroupWarps * kMmaRows + row_of_sum(2 * half); }

  // Products of rows `half`, and the biases of their distances.
  static __device__ void add_biases(SumFragment (&products)[kTermColumns], int half, const float* bias) {
#pragma unroll
    for (int n = 0; n < kTermColumns; ++n) {
      const TwoSums both = *reinterpret_cast<const TwoSums*>(bias + first_term_of_lane() + term_of_product(n, 0));
#pragma unroll
      for (int i = 0; i < 2; ++i) products[n].x[2 * half + i] += both.x[i];
    }
  }
  // Those that belong to keys of this tile, or to keys of the next one.
  template <bool kNext>
  __device__ void store(const SumFragment (&products)[kTermColumns], int half) const {
    const int first = query(half) + first_term_of_lane();
    const int left = kTermTile - first;
    float* const to = line(half) + (kNext ? first - kTermTile : first);
#pragma unroll
    for (int n = 0; n < kTermColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool next = term_of_product(n, i) >= left;
        if (next == kNext) to[term_of_product(n, i)] = products[n].x[2 * half + i];
      }
    }
  }
  // Products with a block become terms of the logits of its tile. What the block before it has left is taken, and what
  // belongs to keys of the next tile is left.
  __device__ void move(SumFragment (&products)[kTermColumns], const float* bias) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      add_biases(products, half, bias);
      store<false>(products, half);
      __syncwarp();
      TwoSums of_keys[kTermColumns];
#pragma unroll
      for (int n = 0; n < kTermColumns; ++n) {
        if constexpr (kInOrder) {
          of_keys[n] = *reinterpret_cast<const TwoSums*>(line(half) + n * kMmaColumns + column_of_sum(0));
        } else {
          const float* const from = line(half) + lane_of_warp() % 4;
          of_keys[n] = {{from[key_of_product(n, 0)], from[key_of_product(n, 1)]}};
        }
      }
      __syncwarp();
      store<true>(products, half);
#pragma unroll
      for (int n = 0; n < kTermColumns; ++n) {
        products[n].x[2 * half] = of_keys[n].x[0];
        products[n].x[2 * half + 1] = of_keys[n].x[1];
      }
    }
  }
};

// The way back: gradients of the logits of a warp's 16 queries, by keys in the order of KeyOfLine, become weights of
// terms.
struct GradientStrip {
  static constexpr int kStride = kTermTile + 8;
  static constexpr int kValues = kMmaRows * kStride;
  bfloat16* begin;  // of the warp

  // Before the first tile: nothing is left of a tile before it.
  __device__ void clear() const {
    for (int n = lane_of_warp(); n < kValues / 8; n += kWarp) reinterpret_cast<Words*>(begin)[n] = {};
  }
  // Gradients, packed for a product with the keys, with terms of this tile's block or of the one before it.
  template <bool kBefore>
  __device__ void store(const LeftFragment (&gradients)[kTermColumns / 2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = TermStrip<0>::query(half);
      const int first = lane_of_warp() % 4 - query;  // term of the first key
      bfloat16* const to = begin + row_of_sum(2 * half) * kStride + first + (kBefore ? kTermTile : 0);
#pragma unroll
      for (int n = 0; n < kTermColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const bool before = key_of_product(n, i) < -first;
          if (before == kBefore) {
            to[key_of_product(n, i)].bits = static_cast<uint16_t>(gradients[n / 2].x[n % 2 * 2 + half] >> (16 * i));
          }
        }
      }
    }
  }
  // The left matrix of a product with the lines of a block.
  __device__ void load(LeftFragment (&weights)[kTermColumns / 2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kTermColumns; n += 4) {
        const Words four = *reinterpret_cast<const Words*>(begin + row_of_sum(2 * half) * kStride +
                                                           first_term_of_lane() + term_of_product(n, 0));
#pragma unroll
        for (int m = 0; m < 4; ++m) weights[(n + m) / 2].x[m % 2 * 2 + half] = four.x[m];
      }
    }
  }
};

// q + u of the queries of a tile, in two steps: what is loaded may be on its way while something else is computed.
template <int kWidth, int kLines>
struct QueriesWithU {
  using Lines = SharedPanels<kWidth, kLines>;
  static constexpr int kAtOnce = kGroupedThreads / Lines::kChunks;
  Words chunks[kLines / kAtOnce];

  static __device__ int first_feature() { return static_cast<int>(threadIdx.x) % Lines::kChunks * Lines::kChunk; }
  static __device__ int line(int n) { return static_cast<int>(threadIdx.x) / Lines::kChunks + n * kAtOnce; }

  __device__ void load(const AttentionOperands<bfloat16>& in, const Place& at, int first_query) {
#pragma unroll
    for (int n = 0; n < kLines / kAtOnce; ++n) {
      const int query = first_query + line(n);
      chunks[n] = {};
      if (query < in.queries && first_feature() < in.size) {
        chunks[n] = *reinterpret_cast<const Words*>(line_of_query(in.q, in.size, in, at, query) + first_feature());
      }
    }
  }
  // Lines behind the last query are u.
  __device__ void store(const Lines& to, const AttentionOperands<bfloat16>& in, int head) const {
    const bool with_u = in.u != nullptr && first_feature() < in.size;
    const float* const u = with_u ? in.u + static_cast<int64_t>(head) * in.size + first_feature() : nullptr;
#pragma unroll
    for (int n = 0; n < kLines / kAtOnce; ++n) {
      *reinterpret_cast<Words*>(to.chunk(line(n), first_feature() / Lines::kChunk)) =
          with_u ? with_added(chunks[n], u) : chunks[n];
    }
  }
};

// The operands with biases [H, N] in f32 as TermBlocks take them; they are written first.
AttentionOperands<bfloat16> with_term_biases(const Tensor& biases, const AttentionOperands<bfloat16>& in);

// The pass over distances of the backward pass.
size_t distance_memory_by_warpgroups();
void distance_gradient_by_warpgroups(float* r_parts, float* sum_parts, int64_t groups,
                                     const AttentionOperands<bfloat16>& in, const BackwardOperands<bfloat16>& back);

}  // namespace quire::cuda
