// Search of an external memory in one pass over its keys: a block takes 64 queries that read one key head, tiles of 64
// keys pass through shared memory, and scores that exceed the worst of a query's best are staged for it. A full stage
// is merged into the best, which are kept in order. The order of entries is total (score, then age), so the result does
// not depend on the order in which anything is merged, or on how the memory is cut into parts. Searches in bf16 go to
// tensor cores where their operands suit (knn_mma_search.cu).
#include "kernels/cuda/knn/knn_best.h"
#include "kernels/cuda/knn/knn_memory.h"
#include "kernels/cuda/knn/knn_mma.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

namespace {

// The stage of a query holds the scores of 16 keys of a tile, and those that were left before them.
constexpr int kLeft = 32;
constexpr int kStage = kLeft + kSide;
constexpr int kStaged = (kStage + kWarp - 1) / kWarp;  // staged scores of a lane

template <typename T, typename S>
struct SearchOperands {
  using A = Wide<T>;
  const T* q;
  StoredVectors<S> keys;
  int32_t* index;  // [parts, R, T, H, K]
  A* score;
  // The best of each query of a block lie here when they do not fit into shared memory: [blocks, 64, K].
  A* best_score;
  int32_t* best_entry;
  int64_t rows, queries, heads, size, top_k, tiles, parts;
  int64_t group;
  bool quads, key_quads;
};

template <typename A>
struct SearchMemory {
  static constexpr int kLines = 2 * kTile * kDepthStride;

  // Returns the bytes of shared memory; `best` is the number of entries of each query that lie there.
  static size_t bytes(int64_t best, bool bucketed) {
    const int64_t numbers = kLines + kTile * (best + (bucketed ? kWeightStride : kStage));
    const int64_t words = kTile * (best + (bucketed ? 0 : kStage));
    return static_cast<size_t>(numbers) * sizeof(A) + static_cast<size_t>(words) * sizeof(int32_t);
  }
};

// Computes the scores of one tile of keys for the block's queries.
template <typename T, typename S>
__device__ inline void score_tile(Pairs<Wide<T>>& scores, Wide<T>* lines, const SearchOperands<T, S>& in, int64_t row,
                                  int64_t kv_head, int64_t first_query, int64_t first_entry, int64_t end_entry) {
  using A = Wide<T>;
  A* const queries = lines;
  A* const keys = lines + kTile * kDepthStride;
  const auto size = static_cast<int>(in.size);
  for (int first = 0; first < size; first += kDepth) {
    fill_lines<kDepth, kDepthStride>(queries, kTile, first, size, [&](int line, int f) {
      const int64_t n = first_query + line;
      if (n >= in.queries * in.group) return Quad<A>{};
      const int64_t at = (row * in.queries + n / in.group) * in.heads + kv_head * in.group + n % in.group;
      return load_quad(in.q + at * in.size, f, size, in.quads);
    });
    fill_lines<kDepth, kDepthStride>(keys, kTile, first, size, [&](int line, int f) {
      Quad<A> to{};
      const int64_t entry = first_entry + line;
      if (entry >= end_entry) return to;
      const int64_t vector = in.keys.vector_of(row, kv_head, entry);
      const S* const from = in.keys.line(vector) + f;
      const A factor = in.keys.template factor<A>(vector);
      if (in.key_quads) {
        const Quad<S> quad = *reinterpret_cast<const Quad<S>*>(from);
        for (int i = 0; i < kQuad; ++i) to.x[i] = from_stored<A>(quad.x[i]) * factor;
      } else {
        for (int i = 0; i < kQuad; ++i) {
          if (f + i < size) to.x[i] = from_stored<A>(from[i]) * factor;
        }
      }
      return to;
    });
    __syncthreads();
    add_direct(scores, queries, keys, size - first < kDepth ? size - first : kDepth);
    __syncthreads();
  }
}

// Describes the queries and entries of a block, and its memory for the best of its queries.
template <typename T, typename S>
struct Work {
  using A = Wide<T>;
  int64_t row, kv_head, first_query, begin, end, output;
  A* best;
  int32_t* entries;

  __device__ Work(const SearchOperands<T, S>& in, A* shared_best, int32_t* shared_entries) {
    const int64_t block = blockIdx.x;
    const int64_t part = block % in.parts;
    const int64_t tile = block / in.parts % in.tiles;
    const int64_t head = block / in.parts / in.tiles;
    row = head / in.keys.kv_heads;
    kv_head = head % in.keys.kv_heads;
    first_query = tile * kTile;
    const int64_t length = in.keys.length_of(row);
    begin = length * part / in.parts;
    end = length * (part + 1) / in.parts;
    output = part * in.rows * in.queries * in.heads;
    best = in.best_score == nullptr ? shared_best : in.best_score + block * kTile * in.top_k;
    entries = in.best_score == nullptr ? shared_entries : in.best_entry + block * kTile * in.top_k;
  }
  // Returns the line of a query in [parts, R, T, H].
  __device__ int64_t line(const SearchOperands<T, S>& in, int query) const {
    const int64_t n = first_query + query;
    return output + (row * in.queries + n / in.group) * in.heads + kv_head * in.group + n % in.group;
  }
  __device__ bool is_there(const SearchOperands<T, S>& in, int query) const {
    return first_query + query < in.queries * in.group;
  }
};

template <typename T, typename S>
__global__ void __launch_bounds__(kThreads) search_kernel(SearchOperands<T, S> in) {
  using A = Wide<T>;
  const auto top_k = static_cast<int>(in.top_k);
  const int in_shared = in.best_score == nullptr ? kTile * top_k : 0;
  A* const lines = dynamic_shared<A>();
  A* const shared_best = lines + SearchMemory<A>::kLines;
  A* const staged = shared_best + in_shared;
  auto* const shared_entries = reinterpret_cast<int32_t*>(staged + kTile * kStage);
  int32_t* const staged_entries = shared_entries + in_shared;
  const Work<T, S> work(in, shared_best, shared_entries);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int half = lane / kSide;  // of the warp: the 16 threads of one line of queries

  // These belong to query thread_y + 16 i, the same in all 16 threads.
  int kept[kEach];
  int waiting[kEach];
  A limit[kEach];
  for (int i = 0; i < kEach; ++i) {
    kept[i] = 0;
    waiting[i] = 0;
    limit[i] = std::numeric_limits<A>::quiet_NaN();
  }
  const auto merge_lines = [&](int i) {
    for (int h = 0; h < 2; ++h) {
      const int count = __shfl_sync(kAllLanes, waiting[i], h * kSide);
      const int before = __shfl_sync(kAllLanes, kept[i], h * kSide);
      if (count == 0) continue;
      const int query = static_cast<int>(threadIdx.x) / kWarp * 2 + h + i * kSide;
      merge<kStaged>(work.best + query * top_k, work.entries + query * top_k, before, staged + query * kStage,
                     staged_entries + query * kStage, count, top_k);
      if (half != h) continue;
      waiting[i] = 0;
      kept[i] = before + count < top_k ? before + count : top_k;
      if (kept[i] == top_k) limit[i] = work.best[query * top_k + top_k - 1];
    }
  };

  for (int64_t first = work.begin; first < work.end; first += kTile) {
    Pairs<A> scores = {};
    score_tile(scores, lines, in, work.row, work.kv_head, work.first_query, first, work.end);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int query = thread_y() + i * kSide;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t entry = first + thread_x() + j * kSide;
        const bool better = !(scores[i][j] <= limit[i]) && entry < work.end && work.is_there(in, query);
        const unsigned line = __ballot_sync(kAllLanes, better) >> (half * kSide) & 0xffffU;
        if (better) {
          const int at = query * kStage + waiting[i] + __popc(line & ((1U << thread_x()) - 1));
          staged[at] = scores[i][j];
          staged_entries[at] = static_cast<int32_t>(entry);
        }
        waiting[i] += __popc(line);
        if (__any_sync(kAllLanes, waiting[i] > kLeft)) merge_lines(i);
      }
    }
  }
  for (int i = 0; i < kEach; ++i) merge_lines(i);
  for (int i = 0; i < kEach; ++i) {
    const int query = thread_y() + i * kSide;
    if (!work.is_there(in, query)) continue;
    const int64_t to = work.line(in, query) * top_k;
    for (int k = thread_x(); k < top_k; k += kSide) {
      in.index[to + k] = k < kept[i] ? work.entries[query * top_k + k] : -1;
      in.score[to + k] = k < kept[i] ? work.best[query * top_k + k] : A{0};
    }
  }
}

// Finds the best entry of each of K buckets.
template <typename T, typename S>
__global__ void __launch_bounds__(kThreads) search_buckets_kernel(SearchOperands<T, S> in) {
  using A = Wide<T>;
  const auto top_k = static_cast<int>(in.top_k);
  const int in_shared = in.best_score == nullptr ? kTile * top_k : 0;
  A* const lines = dynamic_shared<A>();
  A* const shared_best = lines + SearchMemory<A>::kLines;
  A* const tile = shared_best + in_shared;
  const Work<T, S> work(in, shared_best, reinterpret_cast<int32_t*>(tile + kTile * kWeightStride));
  for (int i = static_cast<int>(threadIdx.x); i < kTile * top_k; i += kThreads) {
    work.best[i] = 0;
    work.entries[i] = -1;
  }
  for (int64_t first = work.begin; first < work.end; first += kTile) {
    Pairs<A> scores = {};
    score_tile(scores, lines, in, work.row, work.kv_head, work.first_query, first, work.end);
    for (int i = 0; i < kEach; ++i) {
      for (int j = 0; j < kEach; ++j) {
        tile[(thread_y() + i * kSide) * kWeightStride + thread_x() + j * kSide] = scores[i][j];
      }
    }
    __syncthreads();
    const int count = static_cast<int>(work.end - first < kTile ? work.end - first : kTile);
    for (int i = 0; i < kEach; ++i) {
      const int query = thread_y() + i * kSide;
      // A bucket's entries of this tile lie K apart; one thread takes them all.
      for (int offset = thread_x(); offset < count && offset < top_k; offset += kSide) {
        const int at = query * top_k + static_cast<int>((first + offset) % top_k);
        for (int c = offset; c < count; c += top_k) {
          const A score = tile[query * kWeightStride + c];
          const auto entry = static_cast<int32_t>(first + c);
          if (work.entries[at] >= 0 && !comes_before(score, entry, work.best[at], work.entries[at])) continue;
          work.best[at] = score;
          work.entries[at] = entry;
        }
      }
    }
    __syncthreads();
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTile * top_k; i += kThreads) {
    if (!work.is_there(in, i / top_k)) continue;
    const int64_t to = work.line(in, i / top_k) * top_k + i % top_k;
    in.index[to] = work.entries[i];
    in.score[to] = work.best[i];
  }
}

// Merges the best of all parts. A thread takes one candidate: its place is the number of candidates before it, in all
// parts.
template <typename A>
__global__ void merge_parts_kernel(int32_t* index, A* score, const int32_t* part_index, const A* part_score,
                                   int64_t lines, int64_t parts, int64_t top_k) {
  const int64_t candidates = lines * parts * top_k;
  for (int64_t i = first_element(); i < candidates; i += element_stride()) {
    const int64_t k = i % top_k;
    const int64_t part = i / top_k % parts;
    const int64_t line = i / top_k / parts;
    const int64_t own = (part * lines + line) * top_k + k;
    const bool there = part_index[own] >= 0;
    int64_t place = k;
    int64_t all = 0;
    for (int64_t other = 0; other < parts; ++other) {
      const int64_t from = (other * lines + line) * top_k;
      int64_t low = 0;
      int64_t high = top_k;
      // Existing entries come first.
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (part_index[from + middle] >= 0 &&
            (other == part || !there ||
             comes_before(part_score[from + middle], part_index[from + middle], part_score[own], part_index[own]))) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      if (other == part) {
        all += low;
      } else {
        place += there ? low : 0;
        all += there ? 0 : low;
      }
    }
    if (there) {
      if (place >= top_k) continue;
      index[line * top_k + place] = part_index[own];
      score[line * top_k + place] = part_score[own];
    } else if (part == 0 && all <= k) {
      // No entry is left for the last places.
      index[line * top_k + k] = -1;
      score[line * top_k + k] = A{0};
    }
  }
}

// Merges the parts bucket by bucket.
template <typename A>
__global__ void merge_buckets_kernel(int32_t* index, A* score, const int32_t* part_index, const A* part_score,
                                     int64_t count, int64_t parts) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    int32_t entry = -1;
    A best = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const int32_t other = part_index[part * count + i];
      const A value = part_score[part * count + i];
      if (other < 0 || (entry >= 0 && !comes_before(value, other, best, entry))) continue;
      entry = other;
      best = value;
    }
    index[i] = entry;
    score[i] = best;
  }
}

template <typename A>
void merge_parts(const Tensor& index, const Tensor& score, const SearchScratch& scratch, int64_t top_k, bool bucketed) {
  const int32_t* const part_index = scratch.part_index.data<int32_t>();
  const A* const part_score = scratch.part_score.data<A>();
  if (bucketed) {
    return launch(merge_buckets_kernel<A>, blocks_for(index.numel()), kBlock, 0, index.data<int32_t>(), score.data<A>(),
                  part_index, part_score, index.numel(), scratch.parts);
  }
  launch(merge_parts_kernel<A>, blocks_for(scratch.parts * index.numel()), kBlock, 0, index.data<int32_t>(),
         score.data<A>(), part_index, part_score, index.numel() / top_k, scratch.parts, top_k);
}

void knn_search(const Tensor& index, const Tensor& score, const Tensor& q, const ops::KnnMemory& memory,
                ops::KnnSearch search) {
  const KnnSizes s(q, index, memory);
  check_knn_search(s, index, score, q, memory);
  if (index.numel() == 0) return;
  const bool bucketed = search == ops::KnnSearch::bucketed;
  static_assert(kGpuTile == kTile);
  const SearchScratch scratch(s, index, q, memory, bucketed, q.device());
  const int64_t parts = scratch.parts;
  const Tensor& to_index = parts > 1 ? scratch.part_index : index;
  const Tensor& to_score = parts > 1 ? scratch.part_score : score;
  if (scratch.tensor_cores) {
    search_on_tensor_cores(scratch, to_index.data<int32_t>(), to_score.data<float>(), q, memory, s, bucketed);
    if (parts > 1) merge_parts<float>(index, score, scratch, s.top_k, bucketed);
    return;
  }
  dispatch_stored(q.dtype(), memory.keys.dtype(), [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    using A = Wide<T>;
    SearchOperands<T, S> in{};
    in.q = q.data<T>();
    in.keys = StoredVectors<S>::of(memory.keys, memory.key_scale, memory);
    in.rows = s.rows;
    in.queries = s.queries;
    in.heads = s.heads;
    in.size = s.size;
    in.top_k = s.top_k;
    in.group = s.group();
    in.tiles = scratch.tiles;
    in.parts = parts;
    in.quads = in_quads<T>(s.size, {&q});
    in.key_quads = in_quads<S>(s.size, {&memory.keys});
    in.index = to_index.data<int32_t>();
    in.score = to_score.data<A>();
    if (!scratch.shared) {
      in.best_score = scratch.best_score.data<A>();
      in.best_entry = scratch.best_entry.data<int32_t>();
    }
    const size_t bytes = SearchMemory<A>::bytes(scratch.shared ? s.top_k : 0, bucketed);
    const dim3 grid(static_cast<unsigned>(scratch.blocks));
    if (bucketed) {
      launch(search_buckets_kernel<T, S>, grid, kThreads, bytes, in);
    } else {
      launch(search_kernel<T, S>, grid, kThreads, bytes, in);
    }
    if (parts > 1) merge_parts<A>(index, score, scratch, s.top_k, bucketed);
  });
}

}  // namespace

void bind_knn_search() {
  ops::knn_search.bind(DeviceKind::cuda, knn_search);
}

}  // namespace quire::cuda
