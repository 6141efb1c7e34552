// Code that the passes of attention to the caches of codewords in bf16 on tensor cores share. The codebook is rounded
// to bf16 once a call. Keys in a row's window are codewords in bf16, too, so that a codeword has the same logit in the
// window and in the cache. Logarithms of counts are added in f32.
#pragma once

#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/vq/vq_attention.h"

namespace quire::cuda {

// Holds the operands, and codewords in bf16.
struct MmaCodeOperands : CodeOperands<bfloat16> {
  const bfloat16* codewords;
};

MmaCodeOperands mma_operands_of(const CodeScratch& scratch, const ops::CodeAttentionInputs& in,
                                const CodeAttentionSizes& sizes);

// Returns a codeword's line, or null when it does not exist or is not in use in this cache: whatever it holds, it
// counts as zeros.
__device__ inline const bfloat16* codeword_line(const MmaCodeOperands& in, const QueryTile& at, int code) {
  if (code >= in.codes || !(in.counts[at.cache + code] > 0)) return nullptr;
  return in.codewords + (static_cast<int64_t>(at.kv_head) * in.codes + code) * in.size;
}
__device__ inline const bfloat16* mean_line(const MmaCodeOperands& in, const QueryTile& at, int code) {
  if (code >= in.codes) return nullptr;
  return in.means + (means_of(in, at.row, at.cache) + code) * in.value_size;
}
// Returns the logarithm of a codeword's count, in powers of 2.
__device__ inline float log_count(const MmaCodeOperands& in, const QueryTile& at, int code) {
  const float count = code < in.codes ? in.counts[at.cache + code] : 0.0F;
  return count > 0 ? log2f(count) : -std::numeric_limits<float>::infinity();
}
__device__ inline float logit_of(float product, float log_count) {
  return log_count == -std::numeric_limits<float>::infinity() ? log_count : product * kLog2E + log_count;
}

// Loads q + u of a tile.
template <int kWidth>
__device__ inline void load_content(const SharedLines<kWidth>& to, const MmaCodeOperands& in, const QueryTile& at) {
  const auto line_of_tile = [&](int a) { return at.first + a < at.end ? line_of(in.q, in.size, in, at, a) : nullptr; };
  if (in.u == nullptr) return copy_lines<kMmaTile>(to, in.size, in.q, line_of_tile);
  constexpr int kChunk = SharedLines<kWidth>::kChunk;
  for (int item = static_cast<int>(threadIdx.x); item < kMmaTile * to.kChunks; item += kMmaThreads) {
    const int a = item / to.kChunks;
    const int f = item % to.kChunks * kChunk;
    Words sums{};
    if (at.first + a < at.end && f < in.size) {
      sums = with_added(*reinterpret_cast<const Words*>(line_of_tile(a) + f),
                        in.u + static_cast<int64_t>(at.head) * in.size + f);
    }
    *reinterpret_cast<Words*>(to.chunk(a, f / kChunk)) = sums;
  }
}

// Copies dout of the queries of a tile, features from `first` on.
template <int kWidth>
__device__ inline void copy_output_gradients(const SharedLines<kWidth>& to, const MmaCodeOperands& in,
                                             const CodeBackwardOperands<bfloat16>& back, const QueryTile& at, int first,
                                             int features) {
  copy_lines<kMmaTile>(to, features, in.q, [&](int a) {
    return at.first + a < at.end ? line_of(back.dout, in.value_size, in, at, a) + first : nullptr;
  });
}

// Holds statistics of the queries of a tile for the backward pass. Where there is no query, all probabilities are zero.
struct CodeStatistics {
  float* log_sum;  // in powers of 2
  float* delta;
  static constexpr int kWords = 2 * kMmaTile;

  __device__ void load(const MmaCodeOperands& in, const CodeBackwardOperands<bfloat16>& back,
                       const QueryTile& at) const {
    const int a = static_cast<int>(threadIdx.x);
    if (a >= kMmaTile) return;
    const bool there = at.first + a < at.end;
    const float stored = there ? back.lse[lse_of(in, at, a)] : std::numeric_limits<float>::infinity();
    // When all logits are -inf, a log_sum of 0 makes their exponentials zero.
    log_sum[a] = stored == -std::numeric_limits<float>::infinity() ? 0 : stored * kLog2E;
    delta[a] = there ? back.delta[lse_of(in, at, a)] : 0.0F;
  }
};

template <int kWidth>
struct CodeMemory {
  SharedLines<kWidth> lines, summed;  // of queries and codewords, 64 each
  SharedLines<kWidth> values;         // means or dout: 64 lines
  SharedLines<kMmaTile> weights;      // probabilities
  float* of_lines;                    // two numbers for each line
  float* of_summed;                   // and two for each line that is summed over

  static constexpr size_t bytes() {
    return (2 * kMmaTile * kWidth + kMmaTile * kWidth + kMmaTile * kMmaTile) * sizeof(bfloat16) +
           4 * kMmaTile * sizeof(float);
  }
  __device__ CodeMemory() {
    lines = {dynamic_shared<bfloat16>()};
    summed = {lines.begin + kMmaTile * kWidth};
    values = {summed.begin + kMmaTile * kWidth};
    weights = {values.begin + kMmaTile * kWidth};
    of_lines = reinterpret_cast<float*>(weights.begin + kMmaTile * kMmaTile);
    of_summed = of_lines + 2 * kMmaTile;
  }
};

// Calls function(width) with an integral constant: the largest number of features of keys and values.
template <typename Function>
void with_width(const MmaCodeOperands& in, Function&& function) {
  if (in.size <= 64 && in.value_size <= 64) return function(std::integral_constant<int, 64>{});
  function(std::integral_constant<int, kMmaWidest>{});
}

}  // namespace quire::cuda
