// Computes gradients of queries and of means.
#include "kernels/cuda/vq/vq_attention_mma.h"

namespace quire::cuda {

namespace {

// Computes dmeans for 64 codewords of a cache. It goes over the query heads of the group one after another.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    code_mean_gradient_mma_kernel(bfloat16* dmeans, MmaCodeOperands in, CodeBackwardOperands<bfloat16> back) {
  constexpr int kColumns = kMmaTile / kMmaColumns;
  constexpr int kOfWarp = kWidth / kMmaWarps;
  const CodeMemory<kWidth> memory;
  const CodeStatistics statistics{memory.of_summed, memory.of_summed + kMmaTile};
  const int code_tiles = ceil_div(in.codes, kMmaTile);
  const int first_code = static_cast<int>(blockIdx.x) % code_tiles * kMmaTile;
  const int line = static_cast<int>(blockIdx.x) / code_tiles;
  const int kv_head = line % in.kv_heads;
  const int block = line / in.kv_heads % (in.caches - 1);
  const int row = line / in.kv_heads / (in.caches - 1);
  const int group = in.heads / in.kv_heads;
  const int first_feature = warp_of_block() * kOfWarp;
  const int first_line = warp_of_block() * kMmaRows;
  // Tiles of the block's queries, head after head; none for a cache that is not read.
  const int queries = in.queries - block * in.block < in.block ? in.queries - block * in.block : in.block;
  const int tiles = queries > 0 ? ceil_div(queries, kMmaTile) : 0;
  const auto tile_of = [&](int number) {
    return query_tile(in, row, kv_head * group + number / tiles, block, number % tiles);
  };

  SumFragment totals[kMmaTile / kMmaRows][kOfWarp / kMmaColumns] = {};
  if (tiles > 0) {
    const QueryTile any = tile_of(0);
    float logs[2];
    for (int half = 0; half < 2; ++half)
      logs[half] = log_count(in, any, first_code + first_line + row_of_sum(2 * half));
    copy_lines<kMmaTile>(memory.lines, in.size, in.q, [&](int c) { return codeword_line(in, any, first_code + c); });
    load_content(memory.summed, in, any);
    statistics.load(in, back, any);
    for (int number = 0; number < group * tiles; ++number) {
      await_copies();
      __syncthreads();  // queries are there, and nobody reads dout and probabilities of the tile before any more
      copy_output_gradients(memory.values, in, back, tile_of(number), 0, in.value_size);
      SumFragment p[1][kColumns] = {};
      multiply_lines(p, memory.lines, first_line, memory.summed, 0, in.size);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float log_sum = statistics.log_sum[n * kMmaColumns + column_of_sum(i)];
          p[0][n].x[i] = exp2f(logit_of(p[0][n].x[i], logs[i / 2]) - log_sum);
        }
      }
      store_weights(memory.weights, first_line, 0, p[0]);
      await_copies();
      __syncthreads();  // dout and probabilities are there, and nobody reads queries any more
      if (number + 1 < group * tiles) {
        load_content(memory.summed, in, tile_of(number + 1));
        statistics.load(in, back, tile_of(number + 1));
      }
      multiply_shared(totals, memory.weights, 0, memory.values, first_feature, in.value_size);
    }
  }

  const int64_t cache = means_of(in, row, cache_of(in, row, block, kv_head));
#pragma unroll
  for (int t = 0; t < kMmaTile / kMmaRows; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int code = first_code + t * kMmaRows + row_of_sum(2 * half);
      if (code >= in.codes) continue;
      bfloat16* const to = dmeans + (cache + code) * in.value_size;
#pragma unroll
      for (int n = 0; n < kOfWarp / kMmaColumns; ++n) {
        const int f = first_feature + n * kMmaColumns + column_of_sum(0);
        if (f >= in.value_size) break;
        store_features(to + f, totals[t][n], half, 1);
      }
    }
  }
}

// A block has 64 queries and goes over 128 codewords at a time. Gradients of logits need all features of the values; dq
// is computed for a part of the features at a time.
template <int kWidth>
struct CodeQueryMemory {
  static constexpr int kCodes = DeepProduct::kColumns;

  SharedLines<kWidth> queries, codewords;
  DeepProduct values;      // of dout and means
  SharedLines<kCodes> ds;  // gradients of logits, in the place of means
  CodeStatistics statistics;
  float* logs;  // [128]

  static constexpr size_t bytes() {
    return ((kMmaTile + kCodes) * kWidth + DeepProduct::kValues) * sizeof(bfloat16) +
           (CodeStatistics::kWords + kCodes) * sizeof(float);
  }
  __device__ explicit CodeQueryMemory(int value_size) {
    queries = {dynamic_shared<bfloat16>()};
    codewords = {queries.begin + kMmaTile * kWidth};
    values = {codewords.begin + kCodes * kWidth, value_size};
    static_assert(kMmaTile * kCodes <= DeepProduct::kPlace);
    ds = {values.begin};
    statistics.log_sum = reinterpret_cast<float*>(values.begin + DeepProduct::kValues);
    statistics.delta = statistics.log_sum + kMmaTile;
    logs = statistics.delta + kMmaTile;
  }
};

// Computes dq for a tile of queries. `terms` gets the amounts that were added, for du.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    code_query_gradient_mma_kernel(bfloat16* dq, float* terms, MmaCodeOperands in,
                                   CodeBackwardOperands<bfloat16> back) {
  using Memory = CodeQueryMemory<kWidth>;
  constexpr int kTiles = DeepProduct::kTiles;
  constexpr int kColumns = kMmaTile / kMmaColumns;
  constexpr int kOfWarp = kWidth / 2;  // features of dq
  const QueryTile at = query_tile(in, blockIdx.x);
  if (at.first >= at.end) return;  // the whole block returns
  const Memory memory(in.value_size);
  const int first_line = DeepProduct::first_line();
  const int first_column = DeepProduct::first_column();
  const int first_feature = warp_of_block() % 2 * kOfWarp;
  const auto fetch_values = [&](int first_code, int step) {
    const int first = step * DeepProduct::kDeep;
    const int features = memory.values.features_of(step);
    copy_output_gradients(memory.values.lines(step), in, back, at, first, features);
    copy_lines<Memory::kCodes>(memory.values.columns(step), features, in.q, [&](int c) {
      const bfloat16* const line = mean_line(in, at, first_code + c);
      return line == nullptr ? nullptr : line + first;
    });
  };
  const auto fetch_codewords = [&](int first_code) {
    copy_lines<Memory::kCodes>(memory.codewords, in.size, in.q,
                               [&](int c) { return codeword_line(in, at, first_code + c); });
    const int c = static_cast<int>(threadIdx.x);
    static_assert(Memory::kCodes == kMmaThreads);
    memory.logs[c] = log_count(in, at, first_code + c);
  };

  load_content(memory.queries, in, at);
  memory.statistics.load(in, back, at);
  fetch_codewords(0);
  fetch_values(0, 0);
  SumFragment totals[kTiles][kOfWarp / kMmaColumns] = {};
  for (int first_code = 0; first_code < in.codes; first_code += Memory::kCodes) {
    DeepProduct::Sums ds = {};
    memory.values.add(ds, [&](int step) { fetch_values(first_code, step); });
    // Half of the warp's codewords are taken at a time, because it has no registers for more.
#pragma unroll
    for (int part = 0; part < kColumns; part += kColumns / 2) {
      SumFragment p[kTiles][kColumns / 2] = {};
      multiply_lines<kMmaRows>(p, memory.queries, first_line, memory.codewords, first_column + part * kMmaColumns,
                               in.size);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int a = first_line + t * kMmaRows + row_of_sum(i);
          const float log_sum = memory.statistics.log_sum[a];
          const float delta = memory.statistics.delta[a];
#pragma unroll
          for (int n = 0; n < kColumns / 2; ++n) {
            const float log = memory.logs[first_column + (part + n) * kMmaColumns + column_of_sum(i)];
            const float probability = exp2f(logit_of(p[t][n].x[i], log) - log_sum);
            float& gradient = ds[t][part + n].x[i];
            // A codeword that is not in use adds nothing.
            gradient = probability != 0 ? probability * (gradient - delta) : 0.0F;
          }
        }
      }
    }
    __syncthreads();  // nobody reads features of values any more
    const int next = first_code + Memory::kCodes;
    if (next < in.codes) fetch_values(next, 0);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) store_weights(memory.ds, first_line + t * kMmaRows, first_column, ds[t]);
    __syncthreads();
    multiply_shared(totals, memory.ds, first_line, memory.codewords, first_feature, in.size);
    __syncthreads();  // nobody reads codewords and gradients of logits any more
    if (next < in.codes) fetch_codewords(next);
  }

#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int a = first_line + t * kMmaRows + row_of_sum(2 * half);
      if (at.first + a >= at.end) continue;
      bfloat16* const to = line_of(dq, in.size, in, at, a);
#pragma unroll
      for (int n = 0; n < kOfWarp / kMmaColumns; ++n) {
        const int f = first_feature + n * kMmaColumns + column_of_sum(0);
        if (f >= in.size) break;
        const TwoSums sums{{totals[t][n].x[2 * half], totals[t][n].x[2 * half + 1]}};
        if (terms != nullptr) *reinterpret_cast<TwoSums*>(line_of(terms, in.size, in, at, a) + f) = sums;
        auto* const both = reinterpret_cast<uint32_t*>(to + f);
        *both = packed(lower_half(*both) + sums.x[0], upper_half(*both) + sums.x[1]);
      }
    }
  }
}

}  // namespace

void code_gradients_on_tensor_cores(bfloat16* dq, float* terms, bfloat16* dmeans,
                                    const CodeBackwardOperands<bfloat16>& back, const ops::CodeAttentionInputs& in,
                                    const CodeAttentionSizes& sizes) {
  const CodeScratch scratch(sizes, in.q.device());
  const MmaCodeOperands operands = mma_operands_of(scratch, in, sizes);
  with_width(operands, [&](auto width) {
    const dim3 queries(static_cast<unsigned>(sizes.rows * sizes.heads * operands.blocks * operands.tiles));
    launch(code_query_gradient_mma_kernel<width>, queries, kMmaThreads, CodeQueryMemory<width>::bytes(), dq, terms,
           operands, back);
    if (dmeans == nullptr) return;
    const dim3 codewords(
        static_cast<unsigned>(sizes.rows * (sizes.caches - 1) * sizes.kv_heads * ceil_div(sizes.codes, kMmaTile)));
    launch(code_mean_gradient_mma_kernel<width>, codewords, kMmaThreads, CodeMemory<width>::bytes(), dmeans, operands,
           back);
  });
}

}  // namespace quire::cuda
