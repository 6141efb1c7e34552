// Exact search on tensor cores. A lane compares the largest of its eight scores of a query and 32 keys with the worst
// of that query's best, in registers; only when one lane of the warp has a larger one are scores examined one by one
// and staged in shared memory. When the stage of a query is nearly full, the warp merges it into the query's best,
// without a barrier of the block.
#include "kernels/cuda/knn/knn_best.h"
#include "kernels/cuda/knn/knn_mma.h"

namespace quire::cuda {

namespace {

constexpr int kStage = static_cast<int>(SearchScratch::kStage);
static_assert(kStage == kWarp);
constexpr int kFull = 24;  // staged entries that are merged at the next occasion

// Returns a score and its entry as one number, which is larger for what comes first: numbers in their order, NaN below
// them; 0: no entry.
__device__ inline uint64_t key_of(float score, int32_t entry) {
  const auto bits = std::bit_cast<uint32_t>(score);
  const uint32_t order = score != score ? 0 : bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<uint64_t>(order) << 32 | ~static_cast<uint32_t>(entry);
}
__device__ inline float score_of(uint64_t key) {
  const auto order = static_cast<uint32_t>(key >> 32);
  if (order == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(order >> 31 != 0 ? order & 0x7fffffffU : ~order);
}
__device__ inline int32_t entry_of(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// Returns the better or the worse number of two lanes `distance` apart.
__device__ inline uint64_t exchanged(uint64_t own, int distance, bool better) {
  const uint64_t other = __shfl_xor_sync(kAllLanes, own, distance);
  return (other > own) == better ? other : own;
}

// Does what merge does when each lane has at most one of the best and one staged entry, by a bitonic network.
__device__ inline void merge_few(float* best, int32_t* entries, int kept, const float* staged,
                                 const int32_t* staged_entries, int count, int top_k) {
  const int lane = lane_of_warp();
  __syncwarp();
  uint64_t more = lane < count ? key_of(staged[lane], staged_entries[lane]) : 0;
  uint64_t own = lane < kept ? key_of(best[lane], entries[lane]) : 0;
#pragma unroll
  for (int size = 2; size <= kWarp; size *= 2) {
#pragma unroll
    for (int distance = size / 2; distance > 0; distance /= 2) {
      const bool rising = (lane & size) == 0;
      const bool lower = (lane & distance) == 0;
      more = exchanged(more, distance, lower != rising);
    }
  }
  // The best are in descending order, the staged ones in ascending order. The better of each pair are therefore the 32
  // best, in a bitonic order.
  own = more > own ? more : own;
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    own = exchanged(own, distance, (lane & distance) == 0);
  }
  if (lane < top_k && own != 0) {
    best[lane] = score_of(own);
    entries[lane] = entry_of(own);
  }
  __syncwarp();
}

// Returns the next smaller number, or NaN for a NaN.
__device__ inline float below(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x > 0) return std::bit_cast<float>(bits - 1);
  if (x == 0) return std::bit_cast<float>(0x80000001U);
  return x < 0 ? std::bit_cast<float>(bits + 1) : x;
}

// Holds the best entries of the warp's queries and those staged for them. Line r is query r % 16 of the warp in tile r
// / 16; a lane is responsible for one line.
template <int kTiles>
struct Selection {
  static constexpr int kLines = kTiles * kMmaRows;
  static constexpr int kGroups =
      2 * kTiles;  // groups of eight scores of a lane: of lines group and group + 8 of each tile

  float* best;  // [queries of the block, top_k]
  int32_t* entries;
  float* staged;  // [lines, kStage]
  int32_t* staged_entries;
  int* counts;  // [lines]; more than kStage: the others wait for room
  int top_k;
  bool is_piece;
  int kept;              // number of best entries of this lane's line
  float limit[kGroups];  // scores that are not larger are skipped

  static __device__ int line_of(int group) { return group * 8 + lane_of_warp() / 4; }
  static __device__ int query_of(int line) {
    return line / kMmaRows * kMmaTile + warp_of_block() * kMmaRows + line % kMmaRows;
  }

  __device__ void set_limit(int line, int count) {
    float worst = std::numeric_limits<float>::quiet_NaN();
    if (count == top_k) worst = best[static_cast<int64_t>(query_of(line)) * top_k + top_k - 1];
    // In a piece entries do not come in the order of their age, so equal scores must pass.
    if (is_piece) worst = below(worst);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) limit[g] = line_of(g) == line ? worst : limit[g];
  }

  __device__ void merge_line(int line) {
    const int staging = counts[line];
    const int count = staging < kStage ? staging : kStage;
    const int before = __shfl_sync(kAllLanes, kept, line);
    const int64_t to = static_cast<int64_t>(query_of(line)) * top_k;
    if (top_k <= kWarp) {
      merge_few(best + to, entries + to, before, staged + line * kStage, staged_entries + line * kStage, count, top_k);
    } else {
      merge<1>(best + to, entries + to, before, staged + line * kStage, staged_entries + line * kStage, count, top_k);
    }
    const int now = before + count < top_k ? before + count : top_k;
    if (lane_of_warp() == line) {
      kept = now;
      counts[line] = 0;
    }
    set_limit(line, now);
    __syncwarp();
  }

  // Returns in bits 8 g.. the scores of group g that pass and whose keys exist.
  template <typename S>
  __device__ uint32_t passing(const SumFragment (&scores)[kTiles][kSearchColumns], const float (&largest)[kGroups],
                              const SearchPlace<S>& at, int first) const {
    uint32_t open = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (largest[g] <= limit[g] || !at.has_query(query_of(line_of(g)))) continue;
#pragma unroll
      for (int n = 0; n < kSearchColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const bool passes = !(scores[g / 2][n].x[g % 2 * 2 + i] <= limit[g]);
          if (passes && at.has(first + n * kMmaColumns + column_of_sum(i))) open |= 1U << (g * 8 + n * 2 + i);
        }
      }
    }
    return open;
  }

  template <typename S>
  __device__ void take(const SumFragment (&scores)[kTiles][kSearchColumns], uint32_t open, const SearchPlace<S>& at,
                       int first) {
    for (bool again = true; again;) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if ((open >> (g * 8) & 0xffU) == 0) continue;
        const int line = line_of(g);
#pragma unroll
        for (int n = 0; n < kSearchColumns; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const uint32_t bit = 1U << (g * 8 + n * 2 + i);
            if ((open & bit) == 0) continue;
            // Their order in the stage does not matter.
            const int place = atomicAdd(counts + line, 1);
            if (place >= kStage) continue;
            staged[line * kStage + place] = scores[g / 2][n].x[g % 2 * 2 + i] + 0.0F;  // no -0
            staged_entries[line * kStage + place] = at.entry_of(first + n * kMmaColumns + column_of_sum(i));
            open &= ~bit;
          }
        }
      }
      __syncwarp();
      again = merge_from(kFull);
      again = __any_sync(kAllLanes, open != 0) && again;
    }
  }

  // Merges the lines with at least min_count staged entries; returns false when there is none.
  __device__ bool merge_from(int min_count) {
    const int lane = lane_of_warp();
    unsigned full = __ballot_sync(kAllLanes, lane < kLines && counts[lane % kLines] >= min_count);
    const bool some = full != 0;
    for (; full != 0; full &= full - 1) merge_line(__ffs(static_cast<int>(full)) - 1);
    return some;
  }
};

template <int kWidth, int kTiles, typename S>
__global__ void __launch_bounds__(kMmaThreads, 4 - kTiles) search_mma_kernel(MmaSearch<S> in) {
  constexpr int kQueries = kTiles * kMmaTile;
  constexpr int kLines = Selection<kTiles>::kLines;
  constexpr int kValues = kMmaTile * kWidth * (MmaSearch<S>::kConverted ? 3 : 4) / 2;
  const auto at = SearchPlace<S>::template of<kQueries>(in);
  const int lane = lane_of_warp();
  const int top_k = in.top_k;
  const bool in_shared = in.best_score == nullptr;
  bfloat16* const room = dynamic_shared<bfloat16>();
  float* const staged = reinterpret_cast<float*>(room + kValues);
  auto* const staged_entries = reinterpret_cast<int32_t*>(staged + kQueries * kStage);
  int* const counts = staged_entries + kQueries * kStage;
  float* const factors = reinterpret_cast<float*>(counts + kQueries);
  float* const shared_best = factors + kMmaTile;
  auto* const shared_entries = reinterpret_cast<int32_t*>(shared_best + (in_shared ? kQueries * top_k : 0));
  const int64_t of_block = static_cast<int64_t>(blockIdx.x) * kQueries * top_k;

  Selection<kTiles> selection;
  const int first_line = warp_of_block() * kLines;
  selection.best = in_shared ? shared_best : in.best_score + of_block;
  selection.entries = in_shared ? shared_entries : in.best_entry + of_block;
  selection.staged = staged + first_line * kStage;
  selection.staged_entries = staged_entries + first_line * kStage;
  selection.counts = counts + first_line;
  selection.top_k = top_k;
  selection.is_piece = in.is_piece;
  selection.kept = 0;
#pragma unroll
  for (int g = 0; g < Selection<kTiles>::kGroups; ++g) {
    // At first every score passes; without a query only NaN does.
    const bool is_query = at.has_query(Selection<kTiles>::query_of(Selection<kTiles>::line_of(g)));
    selection.limit[g] = is_query ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  }

  LeftFragment queries[kTiles][kWidth / kMmaDepth];
  load_query_fragments<kWidth>(queries, room, in, at);
  KeyTiles<kWidth, S> tiles{room, factors, 0.0F, 0};
  if (at.begin < at.end) tiles.fetch(in, at, at.begin);
  if (lane < kLines) selection.counts[lane] = 0;
  __syncwarp();
  for (int line = 0; in.is_next && line < kLines; ++line) {
    const int query = Selection<kTiles>::query_of(line);
    if (!at.has_query(query)) continue;
    int kept = 0;
    for (int k = lane; k - lane < top_k; k += kWarp) {
      const int64_t from = at.line_of_result(in, query) * top_k + k;
      const int32_t entry = k < top_k ? in.index[from] : -1;
      if (entry >= 0) {
        selection.entries[static_cast<int64_t>(query) * top_k + k] = entry;
        selection.best[static_cast<int64_t>(query) * top_k + k] = in.score[from];
      }
      kept += __popc(__ballot_sync(kAllLanes, entry >= 0));
    }
    if (lane == line) selection.kept = kept;
    __syncwarp();
    selection.set_limit(line, kept);
  }

  for (int first = at.begin; first < at.end; first += kMmaTile) {
    tiles.take();
    const SharedLines<kWidth> keys = tiles.lines();
    if (first + kMmaTile < at.end) tiles.fetch(in, at, first + kMmaTile);
#pragma unroll 1
    for (int key = 0; key < kMmaTile && first + key < at.end; key += kSearchKeys) {
      SumFragment scores[kTiles][kSearchColumns] = {};
      score_keys(scores, queries, tiles, keys, key, in.size);
      float largest[Selection<kTiles>::kGroups];
      bool passes = false;
#pragma unroll
      for (int g = 0; g < Selection<kTiles>::kGroups; ++g) {
        const auto score = [&](int n, int i) { return scores[g / 2][n].x[g % 2 * 2 + i]; };
        largest[g] = fmaxf(score(0, 0), score(0, 1));
#pragma unroll
        for (int n = 1; n < kSearchColumns; ++n) largest[g] = fmaxf(largest[g], fmaxf(score(n, 0), score(n, 1)));
        passes = passes || !(largest[g] <= selection.limit[g]);
      }
      if (!__any_sync(kAllLanes, passes)) continue;
      const uint32_t open = selection.passing(scores, largest, at, first + key);
      selection.take(scores, open, at, first + key);
    }
  }

  selection.merge_from(1);
  for (int line = 0; line < kLines; ++line) {
    const int query = Selection<kTiles>::query_of(line);
    const int kept = __shfl_sync(kAllLanes, selection.kept, line);
    if (!at.has_query(query)) continue;
    const int64_t to = at.line_of_result(in, query) * top_k;
    const int64_t from = static_cast<int64_t>(query) * top_k;
    for (int k = lane; k < top_k; k += kWarp) {
      in.index[to + k] = k < kept ? selection.entries[from + k] : -1;
      in.score[to + k] = k < kept ? selection.best[from + k] : 0.0F;
    }
  }
}

}  // namespace

template <typename S>
void search_exactly(const MmaSearch<S>& in, const SearchScratch& scratch) {
  with_sizes(in, scratch, [&](auto width, auto tiles) {
    constexpr int kWidth = decltype(width)::value;
    constexpr int kTiles = decltype(tiles)::value;
    launch(search_mma_kernel<kWidth, kTiles, S>, dim3(static_cast<unsigned>(scratch.blocks)), kMmaThreads,
           bytes_of_search<S>(kWidth, kTiles, scratch.shared ? in.top_k : 0, false), in);
  });
}
template void search_exactly(const MmaSearch<bfloat16>& in, const SearchScratch& scratch);
template void search_exactly(const MmaSearch<int8_t>& in, const SearchScratch& scratch);
template void search_exactly(const MmaSearch<float8>& in, const SearchScratch& scratch);

}  // namespace quire::cuda
