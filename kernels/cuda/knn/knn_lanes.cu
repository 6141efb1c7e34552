// Attention to retrieved entries in bf16: a warp takes a query, and eight of its lanes take an entry. A lane loads
// chunks of 8 features (16 bytes in bf16) of the keys and values of several entries before it uses the first; the sums
// over the features of four keys take three exchanges between lanes. Shared memory is not used, however many entries
// there are: each eight lanes keep maximum, sum and total of their entries, which are combined at the end.
#include "kernels/cuda/knn/knn_lanes.h"

#include "kernels/cuda/mma.h"

namespace quire::cuda {

namespace {

constexpr int kChunk = 8;  // features
constexpr int kLanes = 8;  // lanes of an entry
constexpr int kAbreast = kWarp / kLanes;
constexpr int kReach = kLanes * kChunk;  // features of an entry that are loaded at once
constexpr int kWidest = 2 * kReach;

template <typename S>
struct alignas(kChunk * sizeof(S) < 16 ? kChunk * sizeof(S) : 16) Chunk {
  uint32_t x[kChunk * sizeof(S) / sizeof(uint32_t)];
};

// Returns value n of a chunk.
template <typename S>
__device__ inline float value_of(const Chunk<S>& chunk, int n) {
  if constexpr (std::is_same_v<S, float>) return std::bit_cast<float>(chunk.x[n]);
  if constexpr (std::is_same_v<S, bfloat16>) {
    return n % 2 == 0 ? lower_half(chunk.x[n / 2]) : upper_half(chunk.x[n / 2]);
  }
  if constexpr (sizeof(S) == 1) return from_byte<S>(chunk.x[n / 4] >> (n % 4 * 8) & 0xffU);
}

// Holds a lane's features of a vector: chunk lane % 8 and, of more than 64 features, chunk lane % 8 + 8.
template <int kChunks, typename S>
struct Part {
  Chunk<S> chunks[kChunks];

  // Loads the features, with zeros behind `size` and where there is no vector.
  __device__ void load(const S* vector, int size) {
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const int f = first_feature(j);
      chunks[j] = vector != nullptr && f < size ? *reinterpret_cast<const Chunk<S>*>(vector + f) : Chunk<S>{};
    }
  }
  __device__ float value(int j, int n) const {
    return value_of<S>(chunks[j], n);
  }
  static __device__ int first_feature(int j) {
    return (static_cast<int>(threadIdx.x) % kLanes + j * kLanes) * kChunk;
  }
};

// Sums over the eight lanes of an entry.
__device__ inline float sum_of_lanes(float value) {
  for (int bits = kLanes / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}
// Sums over the four entries that a warp processes at once.
__device__ inline float sum_abreast(float value) {
  for (int bits = kWarp / 2; bits >= kLanes; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}
__device__ inline float largest_abreast(float value) {
  for (int bits = kWarp / 2; bits >= kLanes; bits /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, bits);
    value = other > value ? other : value;
  }
  return value;
}

template <int kChunks, typename X, typename S>
__device__ inline float product(const Part<kChunks, X>& x, const Part<kChunks, S>& y) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int n = 0; n < kChunk; ++n) sum += x.value(j, n) * y.value(j, n);
  }
  return sum_of_lanes(sum);
}

template <typename S>
struct LaneOperands {
  const bfloat16* q;
  const int32_t* index;
  StoredVectors<S> keys, values;
  int64_t lines;
  int queries, heads, size, value_size, top_k, group;
};

// Describes a warp's query and where its entries lie. Consecutive numbers are queries of one head, since they choose
// the same entries.
template <typename S>
struct LaneQuery {
  int64_t number;  // index in [R, H, T]
  int64_t line;    // index in [R, T, H]
  int row, kv_head, length, oldest;
  const int32_t* index;

  static __device__ LaneQuery of(const LaneOperands<S>& in) {
    LaneQuery at;
    at.number = static_cast<int64_t>(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp;
    if (at.number >= in.lines) return at;
    const int64_t query = at.number % in.queries;
    const auto head = static_cast<int>(at.number / in.queries % in.heads);
    at.row = static_cast<int>(at.number / in.queries / in.heads);
    at.line = (at.row * static_cast<int64_t>(in.queries) + query) * in.heads + head;
    at.kv_head = head / in.group;
    at.length = static_cast<int>(in.keys.length_of(at.row));
    const auto slots = in.keys.slots;
    const int64_t from = slots == 0 ? 0 : (in.keys.head[at.row] - static_cast<int64_t>(at.length)) % slots;
    at.oldest = static_cast<int>(from < 0 ? from + slots : from);
    at.index = in.index + at.line * in.top_k;
    return at;
  }
  // Returns the vector number of entry k; -1 when there is none.
  __device__ int64_t vector_of(const LaneOperands<S>& in, int k) const {
    const int entry = k < in.top_k ? index[k] : -1;
    if (entry < 0 || entry >= length) return -1;
    int64_t slot = static_cast<int64_t>(oldest) + entry;
    if (slot >= in.keys.slots) slot -= in.keys.slots;
    return (row * in.keys.slots + slot) * in.keys.kv_heads + kv_head;
  }
};

// Holds keys and values of a lane's entry in each of the next steps.
template <int kChunks, typename S>
struct Loaded {
  // The number of steps is limited by registers.
  static constexpr int kSteps = sizeof(S) > 2 ? 1 : 4 / kChunks;
  static constexpr int kEntries = kSteps * kAbreast;  // of the warp

  bool there[kSteps];
  Part<kChunks, S> keys[kSteps], values[kSteps];
  float key_factor[kSteps], value_factor[kSteps];

  __device__ void load(const LaneOperands<S>& in, const LaneQuery<S>& at, int first) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int u = 0; u < kSteps; ++u) {
      const int64_t vector = at.vector_of(in, first + u * kAbreast + lane / kLanes);
      there[u] = vector >= 0;
      keys[u].load(there[u] ? in.keys.line(vector) : nullptr, in.size);
      values[u].load(there[u] ? in.values.line(vector) : nullptr, in.value_size);
      key_factor[u] = there[u] ? in.keys.template factor<float>(vector) : 0.0F;
      value_factor[u] = there[u] ? in.values.template factor<float>(vector) : 0.0F;
    }
  }
};

// Writes the values of the first eight lanes; the others have the same values.
template <int kChunks>
__device__ inline void store_part(bfloat16* to, int size, const float (&values)[kChunks][kChunk]) {
  if (threadIdx.x % kWarp >= kLanes) return;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int f = Part<kChunks, bfloat16>::first_feature(j);
    Words words;
#pragma unroll
    for (int n = 0; n < 4; ++n) words.x[n] = packed(values[j][2 * n], values[j][2 * n + 1]);
    if (f < size) *reinterpret_cast<Words*>(to + f) = words;
  }
}

template <int kChunks, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    knn_attention_lanes_kernel(bfloat16* out, float* lse, LaneOperands<S> in, bool goes_on) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  using Entries = Loaded<kChunks, S>;
  const auto at = LaneQuery<S>::of(in);
  if (at.number >= in.lines) return;  // whole warps return, and the block has no barrier
  Part<kChunks, bfloat16> q;
  q.load(in.q + at.line * in.size, in.size);
  float top = kNothing;
  float sum = 0;
  float totals[kChunks][kChunk] = {};
  for (int first = 0; first < in.top_k; first += Entries::kEntries) {
    Entries entries;
    entries.load(in, at, first);
    float weights[Entries::kSteps];
    float largest = top;
#pragma unroll
    for (int u = 0; u < Entries::kSteps; ++u) {
      const float logit = product(q, entries.keys[u]) * entries.key_factor[u];
      weights[u] = entries.there[u] ? logit : kNothing;
      largest = weights[u] > largest ? weights[u] : largest;
    }
    const float base = largest == kNothing ? 0.0F : largest;
    const float correction = expf(top - base);
    top = largest;
    sum *= correction;
#pragma unroll
    for (int u = 0; u < Entries::kSteps; ++u) {
      weights[u] = expf(weights[u] - base);
      sum += weights[u];
      weights[u] *= entries.value_factor[u];
    }
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
#pragma unroll
      for (int n = 0; n < kChunk; ++n) {
        totals[j][n] *= correction;
#pragma unroll
        for (int u = 0; u < Entries::kSteps; ++u) totals[j][n] += weights[u] * entries.values[u].value(j, n);
      }
    }
  }

  const float before = goes_on ? lse[at.number] : kNothing;
  float largest = largest_abreast(top);
  largest = largest > before ? largest : before;
  const float base = largest == kNothing ? 0.0F : largest;
  const float share = expf(top - base);
  const float carried = expf(before - base);
  sum = sum_abreast(sum * share) + carried;
  // A sum of NaN is not an empty sum.
  const bool empty = largest == kNothing && sum == 0;
  const float inverse = empty ? 0.0F : 1.0F / sum;
  const bool with_old = goes_on && !empty && carried != 0;
  bfloat16* const to = out + at.line * in.value_size;
  Part<kChunks, bfloat16> old;
  old.load(with_old ? to : nullptr, in.value_size);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int n = 0; n < kChunk; ++n) {
      const float total = sum_abreast(totals[j][n] * share) + (with_old ? carried * old.value(j, n) : 0.0F);
      totals[j][n] = empty ? 0.0F : total * inverse;
    }
  }
  __syncwarp();  // all lanes have read
  store_part(to, in.value_size, totals);
  if (threadIdx.x % kWarp == 0) lse[at.number] = empty ? kNothing : base + logf(sum);
}

template <int kChunks, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    knn_attention_backward_lanes_kernel(bfloat16* dq, const bfloat16* dout, const bfloat16* out, const float* lse,
                                        LaneOperands<S> in, bool accumulate) {
  using Entries = Loaded<kChunks, S>;
  const auto at = LaneQuery<S>::of(in);
  if (at.number >= in.lines) return;
  const float log_sum = lse[at.number];
  Part<kChunks, bfloat16> q, gradient, result;
  q.load(in.q + at.line * in.size, in.size);
  gradient.load(dout + at.line * in.value_size, in.value_size);
  result.load(out + at.line * in.value_size, in.value_size);
  const float mean = product(gradient, result);
  float totals[kChunks][kChunk] = {};
  for (int first = 0; first < in.top_k; first += Entries::kEntries) {
    Entries entries;
    entries.load(in, at, first);
    float weights[Entries::kSteps];
#pragma unroll
    for (int u = 0; u < Entries::kSteps; ++u) {
      const float factor = entries.key_factor[u];
      const float logit = product(q, entries.keys[u]) * factor;
      const float dp = product(gradient, entries.values[u]) * entries.value_factor[u];
      // Where every logit is -inf, the probabilities are 0.
      const bool counts = entries.there[u] && logit != -std::numeric_limits<float>::infinity();
      weights[u] = counts ? expf(logit - log_sum) * (dp - mean) * factor : 0.0F;
    }
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
#pragma unroll
      for (int n = 0; n < kChunk; ++n) {
#pragma unroll
        for (int u = 0; u < Entries::kSteps; ++u) totals[j][n] += weights[u] * entries.keys[u].value(j, n);
      }
    }
  }
  bfloat16* const to = dq + at.line * in.size;
  Part<kChunks, bfloat16> old;
  old.load(accumulate ? to : nullptr, in.size);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int n = 0; n < kChunk; ++n) totals[j][n] = sum_abreast(totals[j][n]) + old.value(j, n);
  }
  __syncwarp();
  store_part(to, in.size, totals);
}

template <typename S>
LaneOperands<S> lane_operands(const ops::KnnAttentionInputs& in, const KnnSizes& s) {
  LaneOperands<S> to{};
  to.q = in.q.data<bfloat16>();
  to.index = in.index.data<int32_t>();
  to.keys = StoredVectors<S>::of(in.memory.keys, in.memory.key_scale, in.memory);
  to.values = StoredVectors<S>::of(in.memory.values, in.memory.value_scale, in.memory);
  to.lines = s.rows * s.queries * s.heads;
  to.queries = static_cast<int>(s.queries);
  to.heads = static_cast<int>(s.heads);
  to.size = static_cast<int>(s.size);
  to.value_size = static_cast<int>(s.value_size);
  to.top_k = static_cast<int>(s.top_k);
  to.group = static_cast<int>(s.group());
  return to;
}

// Calls function(std::integral_constant<int, chunks>, S{}).
template <typename Function>
void with_kernel(const KnnSizes& s, DType stored, Function&& function) {
  dispatch_stored(DType::bf16, stored, [&](auto, auto of_stored) {
    using S = decltype(of_stored);
    if constexpr (!std::is_same_v<S, double>) {
      if (s.size <= kReach && s.value_size <= kReach) return function(std::integral_constant<int, 1>{}, S{});
      function(std::integral_constant<int, 2>{}, S{});
    }
  });
}

dim3 blocks_of(const KnnSizes& s) {
  return dim3(static_cast<unsigned>(ceil_div(s.rows * s.queries * s.heads, int64_t{kBlock / kWarp})));
}

}  // namespace

bool suits_lanes(const ops::KnnAttentionInputs& in, const KnnSizes& s, std::initializer_list<const Tensor*> others) {
  if (in.q.dtype() != DType::bf16 || s.size % kChunk != 0 || s.value_size % kChunk != 0) return false;
  if (s.size > kWidest || s.value_size > kWidest) return false;
  const auto aligned = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; };
  bool all = aligned(in.q) && aligned(in.memory.keys) && aligned(in.memory.values);
  for (const Tensor* other : others) all = all && aligned(*other);
  return all;
}

void knn_attention_in_lanes(const Tensor& out, const Tensor& lse, const ops::KnnAttentionInputs& in, const KnnSizes& s,
                            bool goes_on) {
  with_kernel(s, in.memory.keys.dtype(), [&](auto chunks, auto stored) {
    using S = decltype(stored);
    launch(knn_attention_lanes_kernel<decltype(chunks)::value, S>, blocks_of(s), kBlock, 0, out.data<bfloat16>(),
           lse.data<float>(), lane_operands<S>(in, s), goes_on);
  });
}

void knn_attention_backward_in_lanes(const Tensor& dq, const Tensor& dout, const Tensor& out, const Tensor& lse,
                                     const ops::KnnAttentionInputs& in, const KnnSizes& s, bool accumulate) {
  with_kernel(s, in.memory.keys.dtype(), [&](auto chunks, auto stored) {
    using S = decltype(stored);
    launch(knn_attention_backward_lanes_kernel<decltype(chunks)::value, S>, blocks_of(s), kBlock, 0,
           dq.data<bfloat16>(), dout.data<bfloat16>(), out.data<bfloat16>(), lse.data<float>(), lane_operands<S>(in, s),
           accumulate);
  });
}

}  // namespace quire::cuda
