// Computes listed attention on tensor cores, entry by entry, and the gradients of its queries (listed_mma.h).
#include "kernels/cuda/listed/listed_mma.h"

#include "kernels/cuda/attention/attention_mma.h"

namespace quire::cuda {

namespace {

constexpr int kColumns = kMmaTile / kMmaColumns;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Lists a tile's entries in shared memory. Behind the entries of a slice the tile is filled up with entries without a
// block.
struct EntryTile {
  int32_t place[kMmaTile], entry[kMmaTile];
  // For the backward pass; log_sum in powers of 2. With weights delta has the weight.
  float log_sum[kMmaTile], delta[kMmaTile];
};

template <int kWidth, bool kBackward>
struct ListedMemory {
  static constexpr int kLines = (kBackward ? 4 : 3) * kMmaTile;

  SharedLines<kWidth> queries, keys, values, douts;
  EntryTile& tile;

  static constexpr size_t bytes() { return kLines * kWidth * sizeof(bfloat16) + sizeof(EntryTile); }

  __device__ ListedMemory() : tile(*reinterpret_cast<EntryTile*>(dynamic_shared<bfloat16>() + kLines * kWidth)) {
    queries = {dynamic_shared<bfloat16>()};
    keys = {queries.begin + kMmaTile * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    douts = {values.begin + kMmaTile * kWidth};
  }
};

__device__ inline int no_place(const ListedInBf16& in) {
  return static_cast<int>(in.all_blocks) * in.kv_heads;
}

// Loads a tile's entries. Bit a of the result says that entry a has another place than the one before it. It ends with
// a barrier.
__device__ inline uint64_t load_entries(EntryTile& tile, const ListedInBf16& in, const ListedEntries& entries) {
  const int a = static_cast<int>(threadIdx.x);
  if (a < kMmaTile) {
    const int at = static_cast<int>(blockIdx.x) * kMmaTile + a;
    tile.place[a] = at < entries.count ? entries.place[at] : no_place(in);
    tile.entry[a] = at < entries.count ? entries.entry[at] : 0;
  }
  __syncthreads();
  uint64_t starts = 0;
  for (int first = 0; first < kMmaTile; first += kWarp) {
    const int of_lane = first + lane_of_warp();
    const bool is_first = of_lane == 0 || tile.place[of_lane] != tile.place[of_lane - 1];
    starts |= uint64_t{__ballot_sync(kAllLanes, is_first)} << first;
  }
  return starts;
}

// Returns the end of the entries with the same place as entry `begin`, which is the first of them.
__device__ inline int end_of_place(uint64_t starts, int begin) {
  const uint64_t later = begin + 1 < kMmaTile ? starts >> (begin + 1) : 0;
  if (static_cast<unsigned>(later) != 0) return begin + __ffs(static_cast<int>(later));
  return later != 0 ? begin + kWarp + __ffs(static_cast<int>(later >> kWarp)) : kMmaTile;
}

// Loads the queries of a tile's entries, each rotated for its block and rounded to bf16.
template <int kWidth>
__device__ inline void load_queries(const SharedLines<kWidth>& to, const EntryTile& tile, const ListedInBf16& in,
                                    const ListedEntries& entries) {
  if (in.table == nullptr) {
    copy_lines<kMmaTile>(to, in.size, in.q, [&](int a) {
      return tile.place[a] == no_place(in) ? nullptr : in.q + entries.line_of(in, tile.entry[a]) * in.size;
    });
    return;
  }
  constexpr int kPairs = kWidth / 2;
  for (int item = static_cast<int>(threadIdx.x); item < kMmaTile * kPairs; item += kMmaThreads) {
    const int a = item / kPairs;
    const int i = item % kPairs;
    const bool is_rotated = i < in.pairs;
    const int first = is_rotated && !in.interleaved ? i : 2 * i;
    const int second = is_rotated && !in.interleaved ? i + in.pairs : 2 * i + 1;
    float x = 0;
    float y = 0;
    if (tile.place[a] != no_place(in) && 2 * i < in.size) {
      const int entry = tile.entry[a];
      const int64_t line = entries.line_of(in, entry);
      x = wide(in.q[line * in.size + first]);
      y = wide(in.q[line * in.size + second]);
      if (is_rotated) {
        const float* const angles = in.angles_of(line, entry % in.chosen);
        const float rotated = x * angles[i] - y * angles[in.pairs + i];
        y = x * angles[in.pairs + i] + y * angles[i];
        x = rotated;
      }
    }
    to.at(a, first) = narrow<bfloat16>(x);
    to.at(a, second) = narrow<bfloat16>(y);
  }
}

// Copies lines from `begin` on of the keys or values of a place, with zeros from line `end` on.
template <int kWidth>
__device__ inline void copy_block(const SharedLines<kWidth>& to, const bfloat16* stored, const bfloat16* own, int width,
                                  const ListedInBf16& in, int place, int begin, int end) {
  const int64_t first = in.first_vector(place / in.kv_heads, place % in.kv_heads);
  const bfloat16* const tensor = in.is_own(place / in.kv_heads) ? own : stored;
  copy_lines<kMmaTile>(to, width, tensor, [&](int j) {
    return begin + j < end ? tensor + (first + int64_t{begin + j} * in.kv_heads) * width : nullptr;
  });
}

template <int kWidth>
__device__ inline void copy_keys(const SharedLines<kWidth>& to, const ListedInBf16& in, int place, int begin, int end) {
  copy_block(to, in.keys, in.own_keys, in.size, in, place, begin, end);
}
template <int kWidth>
__device__ inline void copy_values(const SharedLines<kWidth>& to, const ListedInBf16& in, int place, int begin,
                                   int end) {
  copy_block(to, in.values, in.own_values, in.value_size, in, place, begin, end);
}

// The landmark is the key behind the regular ones.
__device__ inline bool is_mark(const ListedInBf16& in, int key, int regular) {
  return in.landmarks && key == regular;
}

// Computes attention of 64 entries. Keys of the next tile are copied while values of this one are multiplied.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads, kWidth == 64 ? 3 : 2)
    listed_mma_kernel(float* parts, float* gates, ListedInBf16 in, ListedEntries entries) {
  constexpr int kFeatures = kWidth / kMmaColumns;
  const ListedMemory<kWidth, false> memory;
  const EntryTile& tile = memory.tile;
  const uint64_t starts = load_entries(memory.tile, in, entries);
  if (tile.place[0] == no_place(in)) return;  // the whole block returns
  const int first_line = warp_of_block() * kMmaRows;
  const float scale = in.scale * kLog2E;
  load_queries(memory.queries, tile, in, entries);
  copy_keys(memory.keys, in, tile.place[0], 0, in.length_of(tile.place[0] / in.kv_heads));
  for (int begin = 0; begin < kMmaTile && tile.place[begin] != no_place(in);) {
    const int place = tile.place[begin];
    const int length = in.length_of(place / in.kv_heads);
    const int regular = in.regular_of(place / in.kv_heads);
    const int end = end_of_place(starts, begin);
    const bool works = begin < first_line + kMmaRows && end > first_line;
    // They belong to a lane's rows group and group + 8.
    float top[2] = {in.first_top(), in.first_top()};
    float sum[2] = {0, 0};
    float mark[2] = {0, 0};
    SumFragment totals[1][kFeatures] = {};
    for (int first_key = 0; first_key < length; first_key += kMmaTile) {
      await_copies();
      __syncthreads();  // keys are there, and nobody reads values of the tile before any more
      copy_values(memory.values, in, place, first_key, in.regular_of(place / in.kv_heads));
      SumFragment logits[1][kColumns] = {};
      if (works) {
        multiply_lines(logits, memory.queries, first_line, memory.keys, 0, in.size);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = first_key + c * kMmaColumns + column_of_sum(i);
            const float logit = logits[0][c].x[i] * scale;
            if (is_mark(in, key, regular)) mark[i / 2] = logit;
            logits[0][c].x[i] = key < regular ? logit : kNothing;
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) go_on(top[half], sum[half], logits[0], totals[0], half);
      }
      await_copies();
      __syncthreads();  // values are there, and nobody reads keys any more
      if (first_key + kMmaTile < length) {
        copy_keys(memory.keys, in, place, first_key + kMmaTile, in.length_of(place / in.kv_heads));
      } else if (end < kMmaTile && tile.place[end] != no_place(in)) {
        copy_keys(memory.keys, in, tile.place[end], 0, in.length_of(tile.place[end] / in.kv_heads));
      }
      if (works) multiply_weights(totals, logits, memory.values, 0, in.value_size);
    }
    if (works) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float all = sum_of_row(sum[half]);
        if (in.softmax_one) all += exp2f(-top[half]);
        const float gate = sum_of_row(mark[half]);
        const int a = first_line + row_of_sum(2 * half);
        if (a < begin || a >= end) continue;
        const int64_t entry = tile.entry[a];
        // The sum is 0 where all logits are -inf.
        const float factor = all == 0 ? 0.0F : 1 / all;
        if (lane_of_warp() % 4 == 0) {
          gates[entry] = all == 0 ? kNothing : (in.landmarks ? gate : top[half] + log2f(all));
        }
#pragma unroll
        for (int n = 0; n < kFeatures; ++n) {
          const int f = n * kMmaColumns + column_of_sum(0);
          if (f >= in.value_size) continue;
          *reinterpret_cast<TwoSums*>(parts + entry * in.value_size +
                                      f) = {{totals[0][n].x[2 * half] * factor, totals[0][n].x[2 * half + 1] * factor}};
        }
      }
    }
    begin = end;
  }
  await_copies();
}

// Holds the sums of the softmax of a row within the block that it reads, over the keys so far, in powers of 2.
struct BlockSums {
  float top;
  float sum = 0, inner = 0;  // sums of P, and of P dw
  float mark = 0;            // the landmark's logit

  __device__ explicit BlockSums(const ListedInBf16& in) : top(in.first_top()) {}
  // Adds rows `half` of a tile of logits, from first_key on, and of products of dout and values. The whole warp calls
  // it.
  __device__ void take(const SumFragment (&logits)[kColumns], const SumFragment (&dw)[kColumns], int half,
                       const ListedInBf16& in, int first_key, int length) {
    const int regular = length - (in.landmarks ? 1 : 0);
    float largest = top;
    float gate = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        const int key = first_key + c * kMmaColumns + column_of_sum(i);
        if (key < regular) largest = fmaxf(largest, logits[c].x[i]);
        if (is_mark(in, key, regular)) gate = logits[c].x[i];
      }
    }
    largest = largest_of_row(largest);
    mark += sum_of_row(gate);
    float more = 0;
    float product = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        if (first_key + c * kMmaColumns + column_of_sum(i) >= regular) continue;
        const float weight = power_of_two(logits[c].x[i] - largest);
        more += weight;
        product += weight * dw[c].x[i];
      }
    }
    const float correction = power_of_two(top - largest);
    sum = sum * correction + sum_of_row(more);
    inner = inner * correction + sum_of_row(product);
    top = largest;
    if (in.softmax_one && first_key + kMmaTile >= length) sum += power_of_two(-top);
  }
};

// With the share a of a landmark and P the softmax within its block, the logit of a key has the gradient
// a P (dw - sum of P dw), and that of the landmark a (sum of P dw - delta). A given weight takes the place of a. In a
// softmax over all keys it is p (dw - delta).
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads, kWidth == 64 ? 3 : 2)
    query_gradient_mma_kernel(float* parts, ListedInBf16 in, ListedEntries entries, ListedBackward back) {
  constexpr int kFeatures = kWidth / kMmaColumns;
  const ListedMemory<kWidth, true> memory;
  const EntryTile& tile = memory.tile;
  const uint64_t starts = load_entries(memory.tile, in, entries);
  if (tile.place[0] == no_place(in)) return;  // the whole block returns
  const int first_line = warp_of_block() * kMmaRows;
  const float scale = in.scale * kLog2E;
  // Blocks of more than one tile need a first pass for their sums.
  const int first_pass = in.is_by_block() && in.length > kMmaTile ? 0 : 1;

  load_queries(memory.queries, tile, in, entries);
  copy_lines<kMmaTile>(memory.douts, in.value_size, back.dout, [&](int a) {
    return tile.place[a] == no_place(in) ? nullptr : back.dout + entries.line_of(in, tile.entry[a]) * in.value_size;
  });
  if (threadIdx.x < kMmaTile && in.is_weighted()) {
    const int entry = tile.entry[threadIdx.x];
    const int64_t of_list = in.weight_of(entries.line_of(in, entry), entry % in.chosen);
    memory.tile.delta[threadIdx.x] = tile.place[threadIdx.x] == no_place(in) ? 0.0F : in.weight[of_list];
  } else if (threadIdx.x < kMmaTile) {
    const int64_t of_line = in.lse_of(entries.line_of(in, tile.entry[threadIdx.x]));
    // When all gates are -inf, a log_sum of 0 makes their exponentials zero.
    memory.tile.log_sum[threadIdx.x] = back.lse[of_line] == kNothing ? 0.0F : back.lse[of_line] * kLog2E;
    memory.tile.delta[threadIdx.x] = back.delta[of_line] - (back.dlse != nullptr ? back.dlse[of_line] : 0.0F);
  }
  for (int begin = 0; begin < kMmaTile && tile.place[begin] != no_place(in);) {
    const int place = tile.place[begin];
    const int length = in.length_of(place / in.kv_heads);
    const int regular = in.regular_of(place / in.kv_heads);
    const int end = end_of_place(starts, begin);
    const bool works = begin < first_line + kMmaRows && end > first_line;
    BlockSums sums[2] = {BlockSums(in), BlockSums(in)};
    SumFragment totals[1][kFeatures] = {};
    for (int pass = first_pass; pass < 2; ++pass) {
      for (int first_key = 0; first_key < length; first_key += kMmaTile) {
        __syncthreads();  // nobody reads keys and values of the tile before any more
        copy_keys(memory.keys, in, place, first_key, in.length_of(place / in.kv_heads));
        copy_values(memory.values, in, place, first_key, in.regular_of(place / in.kv_heads));
        await_copies();
        __syncthreads();
        if (!works) continue;
        SumFragment ds[1][kColumns] = {};
        SumFragment dw[1][kColumns] = {};
        multiply_lines(ds, memory.queries, first_line, memory.keys, 0, in.size);
        multiply_lines(dw, memory.douts, first_line, memory.values, 0, in.value_size);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int i = 0; i < 4; ++i) ds[0][c].x[i] *= scale;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          BlockSums& block = sums[half];
          if (in.is_by_block() && pass == first_pass) block.take(ds[0], dw[0], half, in, first_key, length);
          if (pass == 0) continue;
          const int a = first_line + row_of_sum(2 * half);
          const float delta = tile.delta[a];
          const float log_sum = tile.log_sum[a];
          const bool by_block = in.is_by_block();
          const bool any = by_block && block.sum != 0;  // a logit that is not -inf
          const float of_block = in.landmarks ? power_of_two(block.mark - log_sum) : delta;
          const float share = any ? of_block : 0.0F;
          const float taken = any ? block.inner / block.sum : (by_block ? 0.0F : delta);
          const float max_logit = by_block ? block.top : log_sum;
          const float factor = by_block ? (any ? share / block.sum : 0.0F) : 1.0F;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
              const int key = first_key + c * kMmaColumns + column_of_sum(i);
              const float weight = factor * power_of_two(ds[0][c].x[i] - max_logit);
              const float of_mark = is_mark(in, key, regular) ? share * (taken - delta) : 0.0F;
              ds[0][c].x[i] = key < regular ? weight * (dw[0][c].x[i] - taken) : of_mark;
            }
          }
        }
        if (pass == 1) multiply_weights(totals, ds, memory.keys, 0, in.size);
      }
    }
    if (works) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int a = first_line + row_of_sum(2 * half);
        if (a < begin || a >= end) continue;
        if (in.is_weighted() && lane_of_warp() % 4 == 0) {
          const int64_t line = entries.line_of(in, tile.entry[a]);
          back.inner[in.lse_of(line) * in.chosen + tile.entry[a] % in.chosen] =
              sums[half].sum == 0 ? 0.0F : sums[half].inner / sums[half].sum;
        }
        float* const to = parts + int64_t{tile.entry[a]} * in.size;
#pragma unroll
        for (int n = 0; n < kFeatures; ++n) {
          const int f = n * kMmaColumns + column_of_sum(0);
          if (f >= in.size) continue;
          *reinterpret_cast<TwoSums*>(to + f) = {{totals[0][n].x[2 * half], totals[0][n].x[2 * half + 1]}};
        }
      }
    }
    begin = end;
  }
  await_copies();
}

dim3 tiles_of(const ListedEntries& entries) {
  return dim3(static_cast<unsigned>(ceil_div(entries.count, kMmaTile)));
}

}  // namespace

bool suits_tensor_cores(const Tensor& values_like, const ops::ListedAttentionInputs& in, const ListedSizes& s) {
  return ListedScratch::needed(s, in) && in_chunks(s.size, {&in.q, &in.keys}) &&
         in_chunks(s.value_size, {&in.values, &values_like});
}

bool gradients_suit_tensor_cores(const ops::ListedAttentionGradients& g, const Tensor& dout,
                                 const ops::ListedAttentionInputs& in, const ListedSizes& s) {
  return suits_tensor_cores(dout, in, s) && in_chunks(s.size, {&g.dq, &g.dkeys}) &&
         in_chunks(s.value_size, {&g.dvalues});
}

void attend_to_blocks(float* parts, float* gates, const ListedInBf16& in, const ListedEntries& entries) {
  with_width(in, [&](auto width) {
    launch(listed_mma_kernel<width>, tiles_of(entries), kMmaThreads, ListedMemory<width, false>::bytes(), parts, gates,
           in, entries);
  });
}

void gradients_by_block(float* parts, const ListedInBf16& in, const ListedEntries& entries,
                        const ListedBackward& back) {
  with_width(in, [&](auto width) {
    launch(query_gradient_mma_kernel<width>, tiles_of(entries), kMmaThreads, ListedMemory<width, true>::bytes(), parts,
           in, entries, back);
  });
}

}  // namespace quire::cuda
