// Runs the forward pass, rounds codewords to bf16, and decides which calls tensor cores take.
#include "kernels/cuda/vq/vq_attention_mma.h"

namespace quire::cuda {

namespace {

// Rounds the lines of a codebook; a codeword that no cache uses becomes zero.
__global__ void rounded_codewords_kernel(bfloat16* to, CodeOperands<bfloat16> in) {
  const int64_t line = first_element() / kWarp;
  if (line >= static_cast<int64_t>(in.kv_heads) * in.codes) return;
  const int kv_head = static_cast<int>(line / in.codes);
  float used = 0;
  for (int cache = lane_of_warp(); cache < in.rows * in.blocks; cache += kWarp) {
    const float count = in.counts[cache_of(in, cache / in.blocks, cache % in.blocks, kv_head) + line % in.codes];
    used = count > used ? count : used;
  }
  used = warp_max(used);
  for (int f = lane_of_warp(); f < in.size; f += kWarp) {
    to[line * in.size + f] = narrow<bfloat16>(used > 0 ? in.codebook[line * in.size + f] : 0.0F);
  }
}

void round_codes(const CodeScratch& scratch, const ops::CodeAttentionInputs& in, const CodeAttentionSizes& s) {
  const CodeOperands<bfloat16> from = operands_of<bfloat16>(in, s);
  const int64_t codewords = s.kv_heads * s.codes;
  launch(rounded_codewords_kernel, dim3(static_cast<unsigned>(ceil_div(codewords, kBlock / kWarp))), kBlock, 0,
         scratch.codebook.data<bfloat16>(), from);
}

// Stores the result so far: for all queries of a tile, features first_feature.. of a warp.
template <int kTiles, int kColumns>
__device__ inline void store_totals(bfloat16* out, const SumFragment (&totals)[kTiles][kColumns],
                                    const MmaCodeOperands& in, const QueryTile& at, int first_feature) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int a = t * kMmaRows + row_of_sum(2 * half);
      if (at.first + a >= at.end) continue;
      bfloat16* const to = line_of(out, in.value_size, in, at, a);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int f = first_feature + n * kMmaColumns + column_of_sum(0);
        if (f >= in.value_size) break;
        store_features(to + f, totals[t][n], half, 1);
      }
    }
  }
}

// Computes a tile of queries. The softmax so far counts as one key whose logit is its lse.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    code_attention_mma_kernel(bfloat16* out, float* lse_after, const float* lse, MmaCodeOperands in) {
  constexpr int kColumns = kMmaTile / kMmaColumns;
  constexpr int kOfWarp = kWidth / kMmaWarps;  // features
  const CodeMemory<kWidth> memory;
  const QueryTile at = query_tile(in, blockIdx.x);
  if (at.first >= at.end) return;  // the whole block returns
  const int first_feature = warp_of_block() * kOfWarp;
  const int first_line = warp_of_block() * kMmaRows;
  float* const corrections = memory.of_lines;
  float* const logs = memory.of_summed;
  const auto fetch_codewords = [&](int first_code) {
    copy_lines<kMmaTile>(memory.summed, in.size, in.q, [&](int c) { return codeword_line(in, at, first_code + c); });
    const int c = static_cast<int>(threadIdx.x);
    if (c < kMmaTile) logs[c] = log_count(in, at, first_code + c);
  };
  // Returns the lse of a query of the tile, -inf where it has attended to nothing yet.
  const auto lse_before = [&](int a) {
    return at.first + a < at.end ? lse[lse_of(in, at, a)] : -std::numeric_limits<float>::infinity();
  };

  load_content(memory.lines, in, at);
  fetch_codewords(0);
  // They belong to a lane's rows group and group + 8 of the warp's 16 queries.
  float top[2];
  float sum[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float before = lse_before(first_line + row_of_sum(2 * half));
    const bool empty = before == -std::numeric_limits<float>::infinity();
    top[half] =
        empty ? std::numeric_limits<float>::lowest() : before * kLog2E;  // finite, so that a difference is never NaN
    sum[half] = empty || lane_of_warp() % 4 != 0 ? 0.0F : 1.0F;
  }
  // These are the warp's features of all queries.
  SumFragment totals[kMmaTile / kMmaRows][kOfWarp / kMmaColumns] = {};
#pragma unroll
  for (int t = 0; t < kMmaTile / kMmaRows; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int a = t * kMmaRows + row_of_sum(2 * half);
      if (lse_before(a) == -std::numeric_limits<float>::infinity()) continue;
      const bfloat16* const from = line_of(out, in.value_size, in, at, a);
#pragma unroll
      for (int n = 0; n < kOfWarp / kMmaColumns; ++n) {
        const int f = first_feature + n * kMmaColumns + column_of_sum(0);
        if (f >= in.value_size) break;
        const uint32_t both = *reinterpret_cast<const uint32_t*>(from + f);
        totals[t][n].x[2 * half] = lower_half(both);
        totals[t][n].x[2 * half + 1] = upper_half(both);
      }
    }
  }

  for (int first_code = 0; first_code < in.codes; first_code += kMmaTile) {
    await_copies();
    __syncthreads();  // codewords are there, and nobody reads means and probabilities of the tile before any more
    copy_lines<kMmaTile>(memory.values, in.value_size, in.q, [&](int c) { return mean_line(in, at, first_code + c); });
    SumFragment logits[1][kColumns] = {};
    multiply_lines(logits, memory.lines, first_line, memory.summed, 0, in.size);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = top[half];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          logits[0][n].x[i] = logit_of(logits[0][n].x[i], logs[n * kMmaColumns + column_of_sum(i)]);
          largest = logits[0][n].x[i] > largest ? logits[0][n].x[i] : largest;
        }
      }
      largest = largest_of_row(largest);
      const float correction = exp2f(top[half] - largest);
      top[half] = largest;
      sum[half] *= correction;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          logits[0][n].x[i] = exp2f(logits[0][n].x[i] - largest);
          sum[half] += logits[0][n].x[i];
        }
      }
      if (lane_of_warp() % 4 == 0) corrections[first_line + row_of_sum(2 * half)] = correction;
    }
    store_weights(memory.weights, first_line, 0, logits[0]);
    await_copies();
    __syncthreads();  // means and probabilities are there, and nobody reads codewords any more
    if (first_code + kMmaTile < in.codes) fetch_codewords(first_code + kMmaTile);
    scale_lines(totals, corrections);
    multiply_shared(totals, memory.weights, 0, memory.values, first_feature, in.value_size);
  }

  __syncthreads();  // all have read the corrections
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int a = first_line + row_of_sum(2 * half);
    const float all = sum_of_row(sum[half]);
    const bool empty = all == 0;
    if (lane_of_warp() % 4 != 0) continue;
    corrections[a] = empty ? 0.0F : 1.0F / all;
    if (blockIdx.y == 0 && at.first + a < at.end) {
      lse_after[lse_of(in, at, a)] = empty ? -std::numeric_limits<float>::infinity() : (top[half] + log2f(all)) * kLn2;
    }
  }
  __syncthreads();
  scale_lines(totals, corrections);
  store_totals(out, totals, in, at, first_feature);
}

}  // namespace

bool codes_suit_tensor_cores(const ops::CodeAttentionInputs& in, const CodeAttentionSizes& sizes,
                             std::initializer_list<const Tensor*> others) {
  static_assert(kMmaTile == kTile);
  const auto aligned = [](const Tensor& tensor) {
    return !tensor.defined() || reinterpret_cast<uintptr_t>(tensor.raw()) % sizeof(Words) == 0;
  };
  if (!CodeScratch::needed(sizes, in.q.dtype())) return false;
  for (const Tensor* tensor : others) {
    if (!aligned(*tensor)) return false;
  }
  return aligned(in.q) && aligned(in.codebook) && aligned(in.means);
}

MmaCodeOperands mma_operands_of(const CodeScratch& scratch, const ops::CodeAttentionInputs& in,
                                const CodeAttentionSizes& s) {
  MmaCodeOperands to{};
  static_cast<CodeOperands<bfloat16>&>(to) = operands_of<bfloat16>(in, s);
  round_codes(scratch, in, s);
  to.codewords = scratch.codebook.data<bfloat16>();
  return to;
}

void code_attention_on_tensor_cores(const Tensor& out, const Tensor& lse, const Tensor& before,
                                    const ops::CodeAttentionInputs& in, const CodeAttentionSizes& sizes) {
  const CodeScratch scratch(sizes, in.q.device());
  const MmaCodeOperands operands = mma_operands_of(scratch, in, sizes);
  with_width(operands, [&](auto width) {
    const dim3 blocks(static_cast<unsigned>(sizes.rows * sizes.heads * operands.blocks * operands.tiles));
    launch(code_attention_mma_kernel<width>, blocks, kMmaThreads, CodeMemory<width>::bytes(), out.data<bfloat16>(),
           lse.data<float>(), before.data<float>(), operands);
  });
}

}  // namespace quire::cuda
