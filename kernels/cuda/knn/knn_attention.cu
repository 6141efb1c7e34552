// Attention to retrieved entries, fused: a warp takes a query, reads the keys and values of its entries where they lie
// and keeps logits or weights in shared memory. More entries than fit there are taken in rounds, each of which starts
// from the results of the one before. Calls in bf16 go to knn_lanes.cu where their operands suit.
#include "kernels/cuda/knn/knn_lanes.h"
#include "kernels/cuda/knn/knn_memory.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

namespace {

template <typename T, typename S>
struct RetrievedOperands {
  using A = Wide<T>;
  const T* q;
  const int32_t* index;
  StoredVectors<S> keys, values;
  int64_t lines, queries, heads, size, value_size, group;
  int64_t chosen;        // all entries of a query
  int64_t first, top_k;  // those of a round

  RetrievedOperands(const ops::KnnAttentionInputs& in, const KnnSizes& s)
      : q(in.q.data<T>()),
        index(in.index.data<int32_t>()),
        keys(StoredVectors<S>::of(in.memory.keys, in.memory.key_scale, in.memory)),
        values(StoredVectors<S>::of(in.memory.values, in.memory.value_scale, in.memory)),
        lines(s.rows * s.queries * s.heads),
        queries(s.queries),
        heads(s.heads),
        size(s.size),
        value_size(s.value_size),
        group(s.group()),
        chosen(s.top_k),
        first(0),
        top_k(s.top_k) {}

  // Returns the vector number of entry k of the round and a line of [R, T, H]; -1 when there is none.
  __device__ int64_t vector_of(int64_t line, int64_t k) const {
    const int64_t row = line / heads / queries;
    const int64_t entry = index[line * chosen + first + k];
    return entry < 0 || entry >= keys.length_of(row) ? -1 : keys.vector_of(row, line % heads / group, entry);
  }
  // Returns the index of a line in [R, H, T].
  __device__ int64_t sum_of(int64_t line) const {
    return (line / heads / queries * heads + line % heads) * queries + line / heads % queries;
  }
};

// Holds weights and vector numbers of a warp's query, in shared memory.
template <typename A>
struct WarpMemory {
  A* weights;
  int64_t* vectors;

  static size_t bytes(int64_t top_k) { return static_cast<size_t>(top_k) * (sizeof(A) + sizeof(int64_t)); }
  __device__ explicit WarpMemory(int64_t top_k) {
    const int64_t warps = blockDim.x / kWarp;
    const int64_t warp = threadIdx.x / kWarp;
    auto* const all = dynamic_shared<int64_t>();
    vectors = all + warp * top_k;
    weights = reinterpret_cast<A*>(all + warps * top_k) + warp * top_k;
  }
};

// A round has at most this many entries.
constexpr int64_t kMaxEntries = 4096;

// Returns the threads of a block: as many warps as fit into shared memory, at most 8.
template <typename A>
int threads_for(int64_t top_k) {
  static_assert(kMaxEntries * (sizeof(A) + sizeof(int64_t)) <= kMaxShared);
  const int64_t max_warps = kMaxShared / static_cast<int64_t>(WarpMemory<A>::bytes(top_k > 0 ? top_k : 1));
  return kWarp * static_cast<int>(max_warps < 8 ? max_warps : 8);
}

// Calls function(operands, threads, bytes of shared memory, whether it is the first round), at least once even without
// entries.
template <typename T, typename S, typename Function>
void for_rounds(RetrievedOperands<T, S> operands, Function&& function) {
  using A = Wide<T>;
  for (; operands.first == 0 || operands.first < operands.chosen; operands.first += kMaxEntries) {
    const int64_t left = operands.chosen - operands.first;
    operands.top_k = left < kMaxEntries ? left : kMaxEntries;
    const int threads = threads_for<A>(operands.top_k);
    function(operands, threads, WarpMemory<A>::bytes(operands.top_k) * static_cast<size_t>(threads / kWarp),
             operands.first == 0);
  }
}

// Returns the product of two vectors to all lanes.
template <typename A, typename X, typename S>
__device__ inline A dot(const X* x, const S* stored, int64_t size) {
  A sum = 0;
  for (int64_t d = threadIdx.x % kWarp; d < size; d += kWarp) sum += from_stored<A>(x[d]) * from_stored<A>(stored[d]);
  return warp_sum(sum);
}

template <typename T, typename S>
__global__ void knn_attention_kernel(T* out, Wide<T>* lse, RetrievedOperands<T, S> in, bool goes_on) {
  using A = Wide<T>;
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  const WarpMemory<A> memory(in.top_k);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t line = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (line >= in.lines) return;  // whole warps return, and the block has no barrier
  const A before = goes_on ? lse[in.sum_of(line)] : kNothing;
  A top = before;
  bool empty = before == kNothing;
  for (int64_t k = 0; k < in.top_k; ++k) {
    const int64_t vector = in.vector_of(line, k);
    A logit = kNothing;
    if (vector >= 0) {
      logit = dot<A>(in.q + line * in.size, in.keys.line(vector), in.size) * in.keys.template factor<A>(vector);
    }
    if (lane == 0) {
      memory.weights[k] = logit;
      memory.vectors[k] = vector;
    }
    top = logit > top ? logit : top;
    empty = empty && logit == kNothing;  // a NaN is no -inf, so it reaches the result
  }
  __syncwarp();
  if (top == kNothing) top = 0;
  A sum = 0;
  for (int64_t k = lane; k < in.top_k; k += kWarp) {
    const A weight = std::exp(memory.weights[k] - top);
    memory.weights[k] = weight;
    sum += weight;
  }
  const A carried = std::exp(before - top);
  sum = warp_sum(sum) + carried;
  __syncwarp();
  const A inverse = empty ? A{0} : A{1} / sum;
  for (int64_t f = lane; f < in.value_size; f += kWarp) {
    T* const to = out + line * in.value_size + f;
    A total = goes_on && !empty && carried != 0 ? carried * wide(*to) : A{0};
    for (int64_t k = 0; k < in.top_k; ++k) {
      const int64_t vector = memory.vectors[k];
      if (vector < 0) continue;
      total += memory.weights[k] * in.values.template factor<A>(vector) * from_stored<A>(in.values.line(vector)[f]);
    }
    *to = narrow<T>(empty ? A{0} : total * inverse);
  }
  if (lane == 0) lse[in.sum_of(line)] = empty ? kNothing : top + std::log(sum);
}

template <typename T, typename S>
__global__ void knn_attention_backward_kernel(T* dq, const T* dout, const T* out, const Wide<T>* lse,
                                              RetrievedOperands<T, S> in, bool accumulate) {
  using A = Wide<T>;
  const WarpMemory<A> memory(in.top_k);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t line = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (line >= in.lines) return;
  const T* const gradient = dout + line * in.value_size;
  const A log_sum = lse[in.sum_of(line)];
  const A mean = dot<A>(gradient, out + line * in.value_size, in.value_size);
  for (int64_t k = 0; k < in.top_k; ++k) {
    const int64_t vector = in.vector_of(line, k);
    A weight = 0;
    if (vector >= 0) {
      const A factor = in.keys.template factor<A>(vector);
      const A logit = dot<A>(in.q + line * in.size, in.keys.line(vector), in.size) * factor;
      const A dp = dot<A>(gradient, in.values.line(vector), in.value_size) * in.values.template factor<A>(vector);
      // Where every logit is -inf, the probabilities are 0.
      if (logit != -std::numeric_limits<A>::infinity()) weight = std::exp(logit - log_sum) * (dp - mean) * factor;
    }
    if (lane == 0) {
      memory.weights[k] = weight;
      memory.vectors[k] = vector;
    }
  }
  __syncwarp();
  for (int64_t f = lane; f < in.size; f += kWarp) {
    T* const to = dq + line * in.size + f;
    A total = accumulate ? wide(*to) : A{0};
    for (int64_t k = 0; k < in.top_k; ++k) {
      const int64_t vector = memory.vectors[k];
      if (vector >= 0) total += memory.weights[k] * from_stored<A>(in.keys.line(vector)[f]);
    }
    *to = narrow<T>(total);
  }
}

void knn_attention(const Tensor& out, const Tensor& lse, const ops::KnnAttentionInputs& in, bool goes_on) {
  const KnnSizes s(in.q, in.index, in.memory);
  check_knn_attention(s, out, lse, in);
  if (suits_lanes(in, s, {&out})) return knn_attention_in_lanes(out, lse, in, s, goes_on);
  dispatch_stored(in.q.dtype(), in.memory.keys.dtype(), [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    for_rounds(RetrievedOperands<T, S>(in, s), [&](const auto& operands, int threads, size_t bytes, bool first) {
      launch(knn_attention_kernel<T, S>, dim3(static_cast<unsigned>(ceil_div(operands.lines, threads / kWarp))),
             threads, bytes, out.data<T>(), lse.data<Wide<T>>(), operands, goes_on || !first);
    });
  });
}

void knn_attention_backward(const Tensor& dq, const Tensor& dout, const Tensor& out, const Tensor& lse,
                            const ops::KnnAttentionInputs& in, bool accumulate) {
  const KnnSizes s(in.q, in.index, in.memory);
  check_knn_attention_backward(s, dq, dout, out, lse, in);
  if (suits_lanes(in, s, {&out, &dout, &dq})) {
    return knn_attention_backward_in_lanes(dq, dout, out, lse, in, s, accumulate);
  }
  dispatch_stored(in.q.dtype(), in.memory.keys.dtype(), [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    for_rounds(RetrievedOperands<T, S>(in, s), [&](const auto& operands, int threads, size_t bytes, bool first) {
      launch(knn_attention_backward_kernel<T, S>,
             dim3(static_cast<unsigned>(ceil_div(operands.lines, threads / kWarp))), threads, bytes, dq.data<T>(),
             dout.data<T>(), out.data<T>(), lse.data<Wide<T>>(), operands, accumulate || !first);
    });
  });
}

}  // namespace

void bind_knn_attention() {
  ops::knn_attention.bind(DeviceKind::cuda, knn_attention);
  ops::knn_attention_backward.bind(DeviceKind::cuda, knn_attention_backward);
}

}  // namespace quire::cuda
