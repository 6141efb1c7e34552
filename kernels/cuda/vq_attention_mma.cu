// Attention to the caches of codewords in bf16 on tensor cores. The codebook rounds to bf16 once a call: keys in a
// row's window are codewords in bf16, too, so that a codeword has the same logit in the window and in the cache.
// Logarithms of counts are added in f32.
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/vq_attention.h"

namespace quire::cuda {

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

namespace {

// Lines of a codebook; one that no cache uses is zero.
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

// The operands, and codewords in bf16.
struct MmaCodeOperands : CodeOperands<bfloat16> {
  const bfloat16* codewords;
};

MmaCodeOperands mma_operands_of(const CodeScratch& scratch, const ops::CodeAttentionInputs& in,
                                const CodeAttentionSizes& s) {
  MmaCodeOperands to{};
  static_cast<CodeOperands<bfloat16>&>(to) = operands_of<bfloat16>(in, s);
  round_codes(scratch, in, s);
  to.codewords = scratch.codebook.data<bfloat16>();
  return to;
}

// Null for a codeword that does not exist or is not in use in this cache: whatever it holds, it counts as zeros.
__device__ inline const bfloat16* codeword_line(const MmaCodeOperands& in, const QueryTile& at, int code) {
  if (code >= in.codes || !(in.counts[at.cache + code] > 0)) return nullptr;
  return in.codewords + (static_cast<int64_t>(at.kv_head) * in.codes + code) * in.size;
}
__device__ inline const bfloat16* mean_line(const MmaCodeOperands& in, const QueryTile& at, int code) {
  if (code >= in.codes) return nullptr;
  return in.means + (means_of(in, at.row, at.cache) + code) * in.value_size;
}
// The logarithm of a codeword's count, in powers of 2.
__device__ inline float log_count(const MmaCodeOperands& in, const QueryTile& at, int code) {
  const float count = code < in.codes ? in.counts[at.cache + code] : 0.0F;
  return count > 0 ? log2f(count) : -std::numeric_limits<float>::infinity();
}
__device__ inline float logit_of(float product, float log_count) {
  return log_count == -std::numeric_limits<float>::infinity() ? log_count : product * kLog2E + log_count;
}

// q + u of a tile.
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

// dout of the queries of a tile, features from `first` on.
template <int kWidth>
__device__ inline void copy_output_gradients(const SharedLines<kWidth>& to, const MmaCodeOperands& in,
                                             const CodeBackwardOperands<bfloat16>& back, const QueryTile& at, int first,
                                             int features) {
  copy_lines<kMmaTile>(to, features, in.q, [&](int a) {
    return at.first + a < at.end ? line_of(back.dout, in.value_size, in, at, a) + first : nullptr;
  });
}

// Of the queries of a tile, for the backward pass. Where there is no query all probabilities are zero.
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
    // All logits are -inf: their exponentials are the zeros they should be.
    log_sum[a] = stored == -std::numeric_limits<float>::infinity() ? 0 : stored * kLog2E;
    delta[a] = there ? back.delta[lse_of(in, at, a)] : 0.0F;
  }
};

template <int kWidth>
struct CodeMemory {
  SharedLines<kWidth> lines, summed;  // of queries and codewords, 64 each
  SharedLines<kWidth> values;         // means or dout: 64 lines
  SharedLines<kMmaTile> weights;      // probabilities
  float* of_lines;                    // two numbers a line
  float* of_summed;                   // and of what is summed over

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

// A tile of queries. The softmax so far is one key whose logit is its lse.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    code_attention_mma_kernel(bfloat16* out, float* lse_after, const float* lse, MmaCodeOperands in) {
  constexpr int kColumns = kMmaTile / kMmaColumns;
  constexpr int kOfWarp = kWidth / kMmaWarps;  // features
  const CodeMemory<kWidth> memory;
  const QueryTile at = query_tile(in, blockIdx.x);
  if (at.first >= at.end) return;  // the whole block
  const int first_feature = warp_of_block() * kOfWarp;
  const int first_line = warp_of_block() * kMmaRows;
  float* const corrections = memory.of_lines;
  float* const logs = memory.of_summed;
  const auto fetch_codewords = [&](int first_code) {
    copy_lines<kMmaTile>(memory.summed, in.size, in.q, [&](int c) { return codeword_line(in, at, first_code + c); });
    const int c = static_cast<int>(threadIdx.x);
    if (c < kMmaTile) logs[c] = log_count(in, at, first_code + c);
  };
  // Of a query of the tile; -inf where nothing was attended to.
  const auto lse_before = [&](int a) {
    return at.first + a < at.end ? lse[lse_of(in, at, a)] : -std::numeric_limits<float>::infinity();
  };

  load_content(memory.lines, in, at);
  fetch_codewords(0);
  // Of a lane's rows group and group + 8 of the warp's 16 queries.
  float top[2];
  float sum[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float before = lse_before(first_line + row_of_sum(2 * half));
    const bool empty = before == -std::numeric_limits<float>::infinity();
    top[half] = empty ? std::numeric_limits<float>::lowest() : before * kLog2E;  // finite: differences are no NaN
    sum[half] = empty || lane_of_warp() % 4 != 0 ? 0.0F : 1.0F;
  }
  // Of the warp's features of all queries.
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
#pragma unroll
  for (int t = 0; t < kMmaTile / kMmaRows; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int a = t * kMmaRows + row_of_sum(2 * half);
      if (at.first + a >= at.end) continue;
      bfloat16* const to = line_of(out, in.value_size, in, at, a);
#pragma unroll
      for (int n = 0; n < kOfWarp / kMmaColumns; ++n) {
        const int f = first_feature + n * kMmaColumns + column_of_sum(0);
        if (f >= in.value_size) break;
        *reinterpret_cast<uint32_t*>(to + f) = packed(totals[t][n].x[2 * half], totals[t][n].x[2 * half + 1]);
      }
    }
  }
}

// dmeans of 64 codewords of a cache. Query heads of the group follow each other.
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

// A block has 64 queries and goes over 128 codewords at a time. Gradients of logits take all features of values, those
// of dq few.
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

// dq of a tile of queries; terms: what was added, for du.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    code_query_gradient_mma_kernel(bfloat16* dq, float* terms, MmaCodeOperands in,
                                   CodeBackwardOperands<bfloat16> back) {
  using Memory = CodeQueryMemory<kWidth>;
  constexpr int kTiles = DeepProduct::kTiles;
  constexpr int kColumns = kMmaTile / kMmaColumns;
  constexpr int kOfWarp = kWidth / 2;  // features of dq
  const QueryTile at = query_tile(in, blockIdx.x);
  if (at.first >= at.end) return;  // the whole block
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
    // Half of the warp's codewords at a time: it has no registers for more.
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
            // Nothing of a codeword that is not in use.
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

// Calls function(width), an integral constant: features of keys and values at most.
template <typename Function>
void with_width(const MmaCodeOperands& in, Function&& function) {
  if (in.size <= 64 && in.value_size <= 64) return function(std::integral_constant<int, 64>{});
  function(std::integral_constant<int, kMmaWidest>{});
}

}  // namespace

void round_codes(const CodeScratch& scratch, const ops::CodeAttentionInputs& in, const CodeAttentionSizes& s) {
  const CodeOperands<bfloat16> from = operands_of<bfloat16>(in, s);
  const int64_t codewords = s.kv_heads * s.codes;
  launch(rounded_codewords_kernel, dim3(static_cast<unsigned>(ceil_div(codewords, kBlock / kWarp))), kBlock, 0,
         scratch.codebook.data<bfloat16>(), from);
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
