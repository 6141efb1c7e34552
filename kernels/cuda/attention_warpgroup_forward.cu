#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/attention_warpgroup_terms.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

namespace {

// Keys of a tile: two blocks of 64 features fit on a multiprocessor, with half of its registers each.
template <int kWidth, bool kRelative>
constexpr int kKeysOf = kWidth == 64 || kRelative ? 64 : 128;

// Shared memory of a block: queries, and keys and values of two tiles; with terms of Transformer-XL three blocks of
// them and the warps' strips.
template <int kWidth, bool kRelative>
struct ForwardMemory {
  static constexpr int kKeys = kKeysOf<kWidth, kRelative>;
  using Queries = SharedPanels<kWidth, kGroupedRows>;
  using Keys = SharedPanels<kWidth, kKeys>;
  using Terms = TermBlocks<kWidth, 3>;
  static constexpr int kBiases = kGroupedRows + kKeys;
  static constexpr int kWarps = kGroupedThreads / kWarp;

  Queries queries;
  bfloat16* tiles;
  Terms terms;
  TermStrip<8> strip;
  int* nearest;   // [queries]
  int* farthest;  // [queries]
  float* biases;  // of two tiles, where there are any

  static size_t bytes(bool bias) {
    const size_t of_bias = kRelative ? kWarps * TermStrip<8>::kWords + Terms::kWords : (bias ? 2 * kBiases : 0);
    const size_t values = Queries::kValues + 4 * Keys::kValues + (kRelative ? Terms::kValues : 0);
    return Keys::kAlignment + values * sizeof(bfloat16) + (of_bias + 2 * kGroupedRows) * sizeof(float);
  }

  __device__ ForwardMemory() {
    queries = {first_panel()};
    tiles = queries.begin + Queries::kValues;
    terms.begin = tiles + 4 * Keys::kValues;
    nearest = reinterpret_cast<int*>(terms.begin + (kRelative ? Terms::kValues : 0));
    farthest = nearest + kGroupedRows;
    biases = reinterpret_cast<float*>(farthest + kGroupedRows);
    terms.biases = biases;
    strip.begin = terms.biases + Terms::kWords + warp_of_block() * TermStrip<8>::kWords;
  }
  __device__ Keys keys(int tile) const { return {tiles + tile % 2 * Keys::kValues}; }
  __device__ Keys values(int tile) const { return {tiles + (2 + tile % 2) * Keys::kValues}; }
  // Of distance origin - (kKeys - 1) + n.
  __device__ float* bias(int tile) const { return biases + tile % 2 * kBiases; }
};

// The softmax of a lane's two queries, over the tiles so far. Logits are in powers of 2 once they are multiplied by
// `factor`.
struct RunningSoftmax {
  // Finite, also times a factor: differences are no NaN.
  float top[2] = {-1e30F, -1e30F};
  float sum[2] = {0, 0};  // a lane's own part
  float correction[2];    // what the sums of the tiles before are multiplied by
  float factor;

  // Logits of rows `half` become exponentials.
  template <int kColumns>
  __device__ void go_on(SumFragment (&logits)[kColumns], int half) {
    float largest = top[half];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) largest = fmaxf(largest, logits[n].x[i]);
    }
    largest = largest_of_row(largest);
    correction[half] = power_of_two((top[half] - largest) * factor);
    top[half] = largest;
    sum[half] *= correction[half];
    const float shift = -largest * factor;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        logits[n].x[i] = power_of_two(fmaf(logits[n].x[i], factor, shift));
        sum[half] += logits[n].x[i];
      }
    }
  }
  template <int kFeatures>
  __device__ void correct(SumFragment (&totals)[kFeatures]) const {
#pragma unroll
    for (int n = 0; n < kFeatures; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) totals[n].x[i] *= correction[i / 2];
    }
  }
};

// A block has one row, head and 128 queries. A lane has two of them, rows group and group + 8 of its warp's. While the
// values of a tile are summed the logits of the next one become exponentials. kRelative: with terms of Transformer-XL.
template <int kWidth, bool kRelative>
__global__ void __launch_bounds__(kGroupedThreads, kWidth == 64 ? 2 : 1)
    attention_warpgroup_kernel(bfloat16* out, float* lse, AttentionOperands<bfloat16> in) {
  if constexpr (kHasWarpgroups) {
    constexpr int kKeys = kKeysOf<kWidth, kRelative>;
    constexpr int kColumns = kKeys / kMmaColumns;
    constexpr int kFeatures = kWidth / kMmaColumns;
    const bool with_bias = !kRelative && in.bias != nullptr;
    const ForwardMemory<kWidth, kRelative> memory;
    const int tiles = ceil_div(in.queries, kGroupedRows);
    const int line = static_cast<int>(blockIdx.x) / tiles;
    // Tiles with many keys first.
    const int first_query = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kGroupedRows;
    const Place at = place_of(in, line / in.heads, line % in.heads);
    const float scale = in.scale * kLog2E;

    if constexpr (kRelative) {
      QueriesWithU<kWidth, kGroupedRows> queries;
      queries.load(in, at, first_query);
      queries.store(memory.queries, in, at.head);
    } else {
      copy_tile(memory.queries, queries_of(in, at, in.q, in.size), first_query, 0, in.queries);
    }
    load_distances(memory.nearest, memory.farthest, in, at.row, first_query, kGroupedRows);
    __syncthreads();
    const VisibleRange range = visible_range(memory.nearest, memory.farthest, in.slots, first_query, kGroupedRows);
    const int first_tile = (range.low + in.slots) / kKeys;
    const int end_tile = range.high > range.low ? ceil_div(range.high + in.slots, kKeys) : first_tile;
    const TileLines keys = keys_of(in, at, in.k, in.cache_k, in.size);
    const TileLines values = keys_of(in, at, in.v, in.cache_v, in.value_size);
    const auto fetch_terms = [&](int block) {
      memory.terms.fetch(block, in, at, first_query - (block * kTermTile - in.slots));
    };
    const auto fetch_keys = [&](int tile) {
      const int first_key = tile * kKeys - in.slots;
      copy_tile(memory.keys(tile), keys, first_key, range.low, range.high);
      if constexpr (kRelative) fetch_terms(tile);
      if (with_bias) {
        load_biases_of_tile(memory.bias(tile), kGroupedRows + kKeys - 1, in, at, first_query - first_key - (kKeys - 1));
      }
    };
    const auto fetch_values = [&](int tile) {
      copy_tile(memory.values(tile), values, tile * kKeys - in.slots, range.low, range.high);
    };
    // What was fetched is there, and nobody reads the tile before any more.
    const auto arrive = [] {
      publish_copies();
      __syncthreads();
    };
    // What the tile and the one after it wait for.
    const auto fetch_for = [&](int tile) {
      if (tile + 1 < end_tile) fetch_keys(tile + 1);
      fetch_values(tile);
    };

    RunningSoftmax softmax;
    softmax.factor = with_bias ? 1.0F : scale;
    SumFragment logits[kColumns];
    SumFragment totals[kFeatures] = {};
    LeftFragment weights[kColumns / 2];
    const int group = warp_of_block() / kGroupWarps;
    // Products with the block of terms of a tile; when they have ended, they move to the columns of their keys.
    [[maybe_unused]] const auto multiply_terms = [&](int tile) {
      if constexpr (kRelative) {
        multiply_lines_later<kWidth>(logits, memory.queries, group * kGroupRows, memory.terms.lines(tile - group));
        end_products();
      }
    };
    [[maybe_unused]] const auto place_terms = [&](int tile) {
      if constexpr (kRelative) {
        begin_products();
        multiply_terms(tile);
        await_products<0>(logits);
        memory.strip.move(logits, memory.terms.bias(tile - group));
      }
    };
    const auto begin_logits = [&](int tile) {
      multiply_lines_later<kWidth, kRelative>(logits, memory.queries, group * kGroupRows, memory.keys(tile));
      end_products();
    };
    const auto finish_logits = [&](int tile) {
      const int origin = first_query - (tile * kKeys - in.slots);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int a = warp_of_block() * kMmaRows + row_of_sum(2 * half);
        if (with_bias) {
          const float* const bias = memory.bias(tile) + a + kKeys - 1;
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
              logits[n].x[i] = fmaf(logits[n].x[i], scale, bias[-n * kMmaColumns - column_of_sum(i)]);
            }
          }
        }
        // In most tiles all pairs are seen.
        const int nearest = memory.nearest[a];
        const int farthest = memory.farthest[a];
        const bool whole = nearest <= origin + a - (kKeys - 1) && farthest >= origin + a;
        if (!whole) {
          hide_unseen(logits, half, origin + a, nearest, farthest, -std::numeric_limits<float>::infinity());
        }
        softmax.go_on(logits, half);
      }
    };

    if (first_tile < end_tile) {
      if constexpr (kRelative) {
        // The blocks before the first one: what they leave to it.
        fetch_terms(first_tile - 2);
        fetch_terms(first_tile - 1);
      }
      fetch_keys(first_tile);
      if constexpr (kRelative) {
        arrive();
        place_terms(first_tile - 1);
      }
      arrive();
      if constexpr (kRelative) place_terms(first_tile);
      begin_products();
      begin_logits(first_tile);
      fetch_for(first_tile);
      await_products<0>(logits);
      finish_logits(first_tile);
      pack_weights(weights, logits);
      for (int tile = first_tile + 1; tile < end_tile; ++tile) {
        arrive();
        // Products first: addresses of what is fetched are computed beside them.
        begin_products();
        if constexpr (kRelative) {
          // Here weights must end before terms move: there are registers for one of them.
          multiply_weights_later(totals, weights, memory.values(tile - 1));
          multiply_terms(tile);
          fetch_for(tile);
          await_products<0>(logits, totals, weights);
          memory.strip.move(logits, memory.terms.bias(tile - group));
          begin_products();
          begin_logits(tile);
          await_products<0>(logits);
          finish_logits(tile);
        } else {
          begin_logits(tile);
          multiply_weights_later(totals, weights, memory.values(tile - 1));
          end_products();
          fetch_for(tile);
          await_products<1>(logits);
          finish_logits(tile);
          // Never so, since these are sums of exponentials. Without a branch that needs them the compiler puts the wait
          // before half of the exponentials; what it reports to inject (C7517) is a wait on this branch.
          if (__any_sync(kAllLanes, softmax.sum[0] + softmax.sum[1] < 0) != 0) stop_kernel();
          await_products<0>(totals, weights);
        }
        softmax.correct(totals);
        pack_weights(weights, logits);
      }
      arrive();
      begin_products();
      multiply_weights_later(totals, weights, memory.values(end_tile - 1));
      end_products();
      await_products<0>(totals, weights);
    } else {
      publish_copies();
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = sum_of_row(softmax.sum[half]);
      const bool empty = all == 0;
      const float factor = empty ? 0.0F : 1.0F / all;
      const int query = first_query + warp_of_block() * kMmaRows + row_of_sum(2 * half);
      if (query >= in.queries) continue;
      if (lane_of_warp() % 4 == 0) {
        lse[(static_cast<int64_t>(at.row) * in.heads + at.head) * in.queries + query] =
            empty ? -std::numeric_limits<float>::infinity() : (softmax.top[half] * softmax.factor + log2f(all)) * kLn2;
      }
      bfloat16* const to = line_of_query(out, in.value_size, in, at, query);
#pragma unroll
      for (int n = 0; n < kFeatures; ++n) {
        const int f = n * kMmaColumns + column_of_sum(0);
        if (f < in.value_size) store_features(to + f, totals[n], half, factor);
      }
    }
  }
}

}  // namespace

bool suits_warpgroups(const Tensor& values_like, const ops::AttentionInputs& in, const AttentionSizes& sizes) {
  // What narrower heads would multiply is mostly zeros.
  constexpr int64_t kNarrowest = 33;
  if (in.dropout > 0 || in.scale <= 0 || sizes.value_size > kMmaWidest ||
      std::max(sizes.size, sizes.value_size) < kNarrowest || !suits_tensor_cores(values_like, in, sizes)) {
    return false;
  }
  size_t needed = 0;
  with_panels(sizes.size, sizes.value_size, in.r.defined(),
              [&](auto width, auto relative) { needed = ForwardMemory<width, relative>::bytes(in.bias.defined()); });
  return multiplies_by_warpgroups() && has_shared_memory(needed);
}

void attention_by_warpgroups(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in,
                             const AttentionSizes& sizes) {
  AttentionOperands<bfloat16> operands = operands_of<bfloat16>(in, sizes);
  const TermBiasScratch terms(sizes, in);
  if (in.r.defined()) operands = with_term_biases(terms.biases, operands);
  with_panels(sizes.size, sizes.value_size, in.r.defined(), [&](auto width, auto relative) {
    launch(attention_warpgroup_kernel<width, relative>,
           dim3(static_cast<unsigned>(sizes.rows * sizes.heads * ceil_div(sizes.queries, kGroupedRows))),
           kGroupedThreads, ForwardMemory<width, relative>::bytes(in.bias.defined()), out.data<bfloat16>(),
           lse.data<float>(), operands);
  });
}

}  // namespace quire::cuda
