#include "kernels/cuda/attention/attention_mma.h"

namespace quire::cuda {

namespace {

// The shared memory of a block holds queries, keys and values. With terms of Transformer-XL it also holds q + v_bias,
// lines of r in two halves of 64 distances that are replaced in turn, and a strip per warp, in which terms move from
// distances to keys.
template <int kWidth, int kTiles, bool kRelative>
struct ForwardMemory {
  static constexpr int kQueries = kTiles * kMmaTile;
  static constexpr bool kWithTerms = kRelative;
  static constexpr int kLines = kQueries + 2 * kMmaTile + (kRelative ? kQueries + 2 * kMmaTile : 0);
  static constexpr int kStrips = kRelative ? kMmaWarps * kMmaRows * kStripStride : 0;
  static constexpr int kBiases = kQueries + kMmaTile;

  SharedLines<kWidth> queries, keys, values, positions, terms;
  float* strips;
  float* bias;      // of distance origin - 63 + n
  int* nearest;     // [queries]
  int* farthest;    // [queries]
  MaskGroup* mask;  // [queries, kMaskGroups]

  static size_t bytes(bool dropout) {
    const size_t words = kStrips + kBiases + 2 * kQueries;
    return kLines * kWidth * sizeof(bfloat16) + words * sizeof(uint32_t) +
           (dropout ? kQueries * kMaskGroups * sizeof(MaskGroup) : 0);
  }

  __device__ ForwardMemory() {
    bfloat16* const lines = dynamic_shared<bfloat16>();
    queries = {lines};
    keys = {lines + kQueries * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    positions = {values.begin + kMmaTile * kWidth};
    terms = {positions.begin + kQueries * kWidth};
    strips = reinterpret_cast<float*>(lines + kLines * kWidth);
    bias = strips + kStrips;
    nearest = reinterpret_cast<int*>(bias + kBiases);
    farthest = nearest + kQueries;
    mask = reinterpret_cast<MaskGroup*>(farthest + kQueries);
  }
};

size_t shared_memory_of(const ops::AttentionInputs& in, const AttentionSizes& sizes) {
  const bool dropout = in.dropout > 0;
  const auto of_width = [&](auto width) {
    return in.r.defined() ? ForwardMemory<width, 1, true>::bytes(dropout)
                          : ForwardMemory<width, 2, false>::bytes(dropout);
  };
  if (sizes.size <= 64 && sizes.value_size <= 64) return of_width(std::integral_constant<int, 64>{});
  return of_width(std::integral_constant<int, kMmaWidest>{});
}

// Copies keys, biases and terms of a tile to memory that the tile before no longer needs.
template <typename Memory>
__device__ inline void fetch_keys(const Memory& memory, const AttentionOperands<bfloat16>& in, const Place& at,
                                  const VisibleRange& range, int first_query, int tile, bool is_first) {
  const int first_key = tile * kMmaTile - in.slots;
  const int origin = first_query - first_key;
  copy_keys<kMmaTile>(memory.keys, in, at, range, first_key);
  if (Memory::kWithTerms) {
    // One half gets distances origin - 63 .. origin; the other half keeps those of the tile before.
    const int half = tile % 2 * kMmaTile;
    copy_terms<kMmaTile>(memory.terms, half, in, at, origin - (kMmaTile - 1));
    if (is_first) copy_terms<kMmaTile>(memory.terms, kMmaTile - half, in, at, origin + 1);
  }
  if (in.bias == nullptr) return;
  for (int n = static_cast<int>(threadIdx.x); n < Memory::kQueries + kMmaTile - 1; n += kMmaThreads) {
    const int distance = origin - (kMmaTile - 1) + n;
    memory.bias[n] = distance >= 0 ? bias_of(in, at, distance) * kLog2E : 0.0F;
  }
}

// Turns the products of a lane's row `half`, which is query a of the tile, into logits.
template <typename Memory, int kColumns>
__device__ inline void finish_logits(SumFragment (&logits)[kColumns], const Memory& memory,
                                     const AttentionOperands<bfloat16>& in, int half, int a, int origin) {
  const float scale = in.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) logits[n].x[i] *= scale;
  }
  if (in.bias != nullptr) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        logits[n].x[i] += memory.bias[a - n * kMmaColumns - column_of_sum(i) + kMmaTile - 1];
      }
    }
  }
  // In most tiles every query sees every key.
  const int nearest = memory.nearest[a];
  const int farthest = memory.farthest[a];
  const bool whole = nearest <= origin + a - (kMmaTile - 1) && farthest >= origin + a;
  if (!whole) hide_unseen(logits, half, origin + a, nearest, farthest, -std::numeric_limits<float>::infinity());
}

// A block has one row, head and kTiles times 64 queries. A warp has 16 of each 64 queries and goes over the keys with
// running maxima and sums.
template <int kWidth, int kTiles, bool kRelative>
__global__ void __launch_bounds__(kMmaThreads)
    attention_mma_kernel(bfloat16* out, float* lse, AttentionOperands<bfloat16> in) {
  constexpr int kQueries = kTiles * kMmaTile;
  constexpr int kColumns = kMmaTile / kMmaColumns;
  constexpr int kFeatures = kWidth / kMmaColumns;
  const ForwardMemory<kWidth, kTiles, kRelative> memory;
  const int tiles = ceil_div(in.queries, kQueries);
  const int line = static_cast<int>(blockIdx.x) / tiles;
  // Tiles with many keys begin first.
  const int first_query = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kQueries;
  const Place at = place_of(in, line / in.heads, line % in.heads);

  load_distances(memory.nearest, memory.farthest, in, at.row, first_query, kQueries);
  __syncthreads();
  const VisibleRange range = visible_range(memory.nearest, memory.farthest, in.slots, first_query, kQueries);
  const int first_tile = (range.low + in.slots) / kMmaTile;

  // They belong to a lane's rows group and group + 8 of each 16 queries.
  float top[kTiles][2];
  float sum[kTiles][2];
  SumFragment totals[kTiles][kFeatures] = {};
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[t][half] = std::numeric_limits<float>::lowest();  // finite, so that a difference is never NaN
      sum[t][half] = 0;
    }
  }

  load_queries<kQueries>(memory.queries, memory.positions, in, at, first_query);
  if (first_tile * kMmaTile - in.slots < range.high) {
    fetch_keys(memory, in, at, range, first_query, first_tile, true);
  }
  for (int tile = first_tile; tile * kMmaTile - in.slots < range.high; ++tile) {
    const int first_key = tile * kMmaTile - in.slots;
    const int origin = first_query - first_key;
    await_copies();
    __syncthreads();  // keys are there, and nobody reads values of the tile before any more
    copy_values<kMmaTile>(memory.values, in, at, range, first_key);

    float* const strip = memory.strips + warp_of_block() * kMmaRows * kStripStride;
    if constexpr (kRelative) {
      static_assert(kTiles == 1);
      const int first_line = warp_of_block() * kMmaRows;
      // Line n of the strip is distance origin + first_line - 63 + n: first lines of this tile's half, then of the
      // other half.
      multiply_strip(strip, memory.positions, first_line, memory.terms, tile % 2 * kMmaTile + first_line, in.size);
      __syncwarp();
    }
    SumFragment logits[kTiles][kColumns] = {};
    multiply_lines(logits, memory.queries, warp_of_block() * kMmaRows, memory.keys, 0, in.size);
    if constexpr (kRelative) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = row_of_sum(i);
          logits[0][n].x[i] += strip[row * kStripStride + row + kMmaTile - 1 - n * kMmaColumns - column_of_sum(i)];
        }
      }
    }

#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int first_line = (t * kMmaWarps + warp_of_block()) * kMmaRows;
      if (in.dropout) {
        __syncwarp();
        fill_mask_of_warp<false>(memory.mask, in, at, first_query, origin, first_line);
        __syncwarp();
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int a = first_line + row_of_sum(2 * half);
        finish_logits(logits[t], memory, in, half, a, origin);
        go_on(top[t][half], sum[t][half], logits[t], totals[t], half);
        if (in.dropout) {
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
              const int distance = origin + a - n * kMmaColumns - column_of_sum(i);
              logits[t][n].x[i] *= kept<false>(memory.mask, in, at, origin, a, distance);
            }
          }
        }
      }
    }

    await_copies();
    __syncthreads();  // values are there, and nobody reads keys any more
    if ((tile + 1) * kMmaTile - in.slots < range.high) {
      fetch_keys(memory, in, at, range, first_query, tile + 1, false);
    }
    multiply_weights(totals, logits, memory.values, 0, in.value_size);
  }
  await_copies();

#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = sum_of_row(sum[t][half]);
      const int query = first_query + (t * kMmaWarps + warp_of_block()) * kMmaRows + row_of_sum(2 * half);
      if (query >= in.queries) continue;
      const bool empty = all == 0;
      const float factor = empty ? 0.0F : 1.0F / all;
      bfloat16* const to = line_of_query(out, in.value_size, in, at, query);
#pragma unroll
      for (int n = 0; n < kFeatures; ++n) {
        const int f = n * kMmaColumns + column_of_sum(0);
        if (f < in.value_size) store_features(to + f, totals[t][n], half, factor);
      }
      if (lane_of_warp() % 4 != 0) continue;
      lse[(static_cast<int64_t>(at.row) * in.heads + at.head) * in.queries + query] =
          empty ? -std::numeric_limits<float>::infinity() : (top[t][half] + log2f(all)) * kLn2;
    }
  }
}

template <int kWidth, int kTiles, bool kRelative>
void launch_forward(const Tensor& out, const Tensor& lse, const AttentionOperands<bfloat16>& in) {
  launch(attention_mma_kernel<kWidth, kTiles, kRelative>,
         dim3(static_cast<unsigned>(in.rows * in.heads * ceil_div(in.queries, kTiles * kMmaTile))), kMmaThreads,
         ForwardMemory<kWidth, kTiles, kRelative>::bytes(in.dropout), out.data<bfloat16>(), lse.data<float>(), in);
}

template <int kWidth>
void with_tiles(const Tensor& out, const Tensor& lse, const AttentionOperands<bfloat16>& in) {
  if (in.r != nullptr) return launch_forward<kWidth, 1, true>(out, lse, in);
  if (in.queries > kMmaTile) return launch_forward<kWidth, 2, false>(out, lse, in);
  launch_forward<kWidth, 1, false>(out, lse, in);
}

}  // namespace

bool suits_tensor_cores(const Tensor& values_like, const ops::AttentionInputs& in, const AttentionSizes& sizes) {
  if (in.q.dtype() != DType::bf16 || sizes.size > kMmaWidest || sizes.value_size > kMmaWidest) return false;
  return in_chunks(sizes.size, {&in.q, &in.k, &in.cache_k, &in.r}) &&
         in_chunks(sizes.value_size, {&in.v, &in.cache_v, &values_like}) &&
         has_shared_memory(shared_memory_of(in, sizes));
}

void attention_on_tensor_cores(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in,
                               const AttentionSizes& sizes) {
  const AttentionOperands<bfloat16> operands = operands_of<bfloat16>(in, sizes);
  if (sizes.size <= 64 && sizes.value_size <= 64) return with_tiles<64>(out, lse, operands);
  with_tiles<kMmaWidest>(out, lse, operands);
}

}  // namespace quire::cuda
