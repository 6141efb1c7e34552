// Attention to the caches of codewords, in tiles of 64 queries and 64 codewords (attention_tiles.h). The backward
// direction has three passes: gradients of queries, their sums for u, and gradients of the caches' means. Every sum has
// one writer.
#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/basic/columns.h"
#include "kernels/cuda/vq/vq_attention.h"

namespace quire::cuda {

namespace {

// Returns q + u of query a of a tile, four features.
template <typename T>
__device__ inline Quad<Wide<T>> load_content(const CodeOperands<T>& in, const QueryTile& at, int a, int first) {
  Quad<Wide<T>> to{};
  if (at.first + a >= at.end) return to;
  to = load_quad(line_of(in.q, in.size, in, at, a), first, in.size, in.quads);
  for (int i = 0; in.u != nullptr && i < kQuad; ++i) {
    if (first + i < in.size) to.x[i] += in.u[static_cast<int64_t>(at.head) * in.size + first + i];
  }
  return to;
}
// Returns four features of a codeword. One that does not exist or is not in use in this cache counts as zeros, whatever
// it holds.
template <typename T>
__device__ inline Quad<Wide<T>> load_codeword(const CodeOperands<T>& in, const QueryTile& at, int code, int first) {
  const bool in_use = code < in.codes && in.counts[at.cache + code] > 0;
  const auto* const line =
      in_use ? in.codebook + (static_cast<int64_t>(at.kv_head) * in.codes + code) * in.size : nullptr;
  return load_quad(line, first, in.size, in.quads);
}
template <typename T>
__device__ inline Quad<Wide<T>> load_mean(const CodeOperands<T>& in, const QueryTile& at, int code, int first) {
  const T* const line = code < in.codes ? in.means + (means_of(in, at.row, at.cache) + code) * in.value_size : nullptr;
  return load_quad(line, first, in.value_size, in.value_quads);
}

// Computes the logits of a tile, -inf for codewords that are not in use. It ends with a barrier.
template <typename T>
__device__ inline void code_logits(Pairs<Wide<T>>& p, const TileMemory<Wide<T>>& memory, const CodeOperands<T>& in,
                                   const QueryTile& at, int first_code) {
  using A = Wide<T>;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) p[i][j] = 0;
  }
  for (int begin = 0; begin < in.size; begin += kDepth) {
    fill_lines<kDepth, kDepthStride>(memory.content, kTile, begin, in.size,
                                     [&](int a, int f) { return load_content(in, at, a, f); });
    fill_lines<kDepth, kDepthStride>(memory.direct, kTile, begin, in.size,
                                     [&](int c, int f) { return load_codeword(in, at, first_code + c, f); });
    __syncthreads();
    add_direct(p, memory.content, memory.direct, in.size - begin < kDepth ? in.size - begin : kDepth);
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int code = first_code + thread_x() + j * kSide;
    const A n = code < in.codes ? in.counts[at.cache + code] : A{0};
    const A log = n > 0 ? std::log(n) : -std::numeric_limits<A>::infinity();
#pragma unroll
    for (int i = 0; i < kEach; ++i) p[i][j] = n > 0 ? p[i][j] + log : log;
  }
}

// Computes a tile of queries (x) and a slice of the values' features (y). The softmax so far counts as one key whose
// logit is its lse.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    code_attention_kernel(T* out, Wide<T>* lse_after, const Wide<T>* lse, CodeOperands<T> in) {
  using A = Wide<T>;
  const TileMemory<A> memory(false, false);
  const QueryTile at = query_tile(in, blockIdx.x);
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;

  A top[kEach];
  A sum[kEach];
  Pairs<A> totals[kChunks] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    const bool there = at.first + a < at.end;
    const A before = there ? lse[lse_of(in, at, a)] : -std::numeric_limits<A>::infinity();
    const bool empty = before == -std::numeric_limits<A>::infinity();
    top[i] = empty ? std::numeric_limits<A>::lowest() : before;  // finite, so that a difference is never NaN
    sum[i] = empty || thread_x() != 0 ? A{0} : A{1};
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (empty || f >= in.value_size) continue;
      const Quad<A> from = load_quad(line_of(out, in.value_size, in, at, a), f, in.value_size, in.value_quads);
#pragma unroll
      for (int n = 0; n < kQuad; ++n) totals[chunk][i][n] = from.x[n];
    }
  }

  for (int first_code = 0; first_code < in.codes; first_code += kTile) {
    Pairs<A> p;
    code_logits(p, memory, in, at, first_code);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      A largest = top[i];
#pragma unroll
      for (int j = 0; j < kEach; ++j) largest = p[i][j] > largest ? p[i][j] : largest;
      largest = go_on(top[i], sum[i], totals, i, largest);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const A value = std::exp(p[i][j] - largest);
        sum[i] += value;
        memory.weights[(thread_y() + i * kSide) * kWeightStride + thread_x() + j * kSide] = value;
      }
    }
    add_values(totals, memory, first_feature, in.value_size,
               [&](int c, int f) { return load_mean(in, at, first_code + c, f); });
  }

#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const A all = sum_of_line(sum[i]);
    const int a = thread_y() + i * kSide;
    if (at.first + a >= at.end) continue;
    const bool empty = all == 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.value_size) continue;
      store_quad(line_of(out, in.value_size, in, at, a), f, in.value_size, in.value_quads, totals[chunk][i],
                 empty ? A{0} : A{1} / all);
    }
    if (blockIdx.y == 0 && thread_x() == 0) {
      lse_after[lse_of(in, at, a)] = empty ? -std::numeric_limits<A>::infinity() : top[i] + std::log(all);
    }
  }
}

template <typename T>
dim3 query_blocks(const CodeOperands<T>& in, int64_t width, int chunks) {
  return dim3(static_cast<unsigned>(static_cast<int64_t>(in.rows) * in.heads * in.blocks * in.tiles),
              static_cast<unsigned>(ceil_div(width, int64_t{chunks} * kTile)));
}

void code_attention(const Tensor& out, const Tensor& lse, const ops::CodeAttentionInputs& in) {
  const CodeAttentionSizes s(in);
  check_code_attention(s, out, lse, in);
  if (out.numel() == 0) return;
  // All slices of a query need the lse from before the call.
  const Tensor before = Tensor::empty_like(lse);
  before.copy_from(lse);
  if (codes_suit_tensor_cores(in, s, {&out})) return code_attention_on_tensor_cores(out, lse, before, in, s);
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    CodeOperands<T> operands = operands_of<T>(in, s);
    operands.value_quads = operands.value_quads && in_quads<T>(s.value_size, {&out});
    with_chunks<T>(s.value_size, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      launch(code_attention_kernel<T, kChunks>, query_blocks(operands, s.value_size, kChunks), kThreads,
             TileMemory<A>::bytes(false, false, false), out.data<T>(), lse.data<A>(), before.data<A>(), operands);
    });
  });
}

// Turns logits into probabilities.
template <typename T>
__device__ inline void probabilities(Pairs<Wide<T>>& p, const CodeOperands<T>& in, const CodeBackwardOperands<T>& back,
                                     const QueryTile& at) {
  using A = Wide<T>;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    const bool there = at.first + a < at.end;
    A log_sum = there ? back.lse[lse_of(in, at, a)] : A{0};
    // When all logits are -inf, a log_sum of 0 makes their exponentials zero.
    if (log_sum == -std::numeric_limits<A>::infinity()) log_sum = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) p[i][j] = there ? std::exp(p[i][j] - log_sum) : A{0};
  }
}

template <typename T>
__device__ inline Quad<Wide<T>> load_dout(const CodeOperands<T>& in, const CodeBackwardOperands<T>& back,
                                          const QueryTile& at, int a, int first) {
  const T* const line = at.first + a < at.end ? line_of(back.dout, in.value_size, in, at, a) : nullptr;
  return load_quad(line, first, in.value_size, in.value_quads);
}

// Computes dq for a tile of queries (x) and a slice of the features (y). `terms` gets the amounts that were added, for
// du.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    code_query_gradient_kernel(T* dq, Wide<T>* terms, CodeOperands<T> in, CodeBackwardOperands<T> back) {
  using A = Wide<T>;
  const TileMemory<A> memory(false, false);
  const QueryTile at = query_tile(in, blockIdx.x);
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  Pairs<A> totals[kChunks] = {};
  for (int first_code = 0; first_code < in.codes; first_code += kTile) {
    Pairs<A> p;
    Pairs<A> ds = {};
    code_logits(p, memory, in, at, first_code);
    probabilities(p, in, back, at);
    for (int begin = 0; begin < in.value_size; begin += kDepth) {
      fill_lines<kDepth, kDepthStride>(memory.content, kTile, begin, in.value_size,
                                       [&](int a, int f) { return load_dout(in, back, at, a, f); });
      fill_lines<kDepth, kDepthStride>(memory.direct, kTile, begin, in.value_size,
                                       [&](int c, int f) { return load_mean(in, at, first_code + c, f); });
      __syncthreads();
      add_direct(ds, memory.content, memory.direct, in.value_size - begin < kDepth ? in.value_size - begin : kDepth);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int a = thread_y() + i * kSide;
      const A delta = at.first + a < at.end ? back.delta[lse_of(in, at, a)] : A{0};
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        // A codeword that is not in use adds nothing, even if its mean is NaN.
        memory.weights[a * kWeightStride + thread_x() + j * kSide] = p[i][j] != 0 ? p[i][j] * (ds[i][j] - delta) : A{0};
      }
    }
    add_values(totals, memory, first_feature, in.size,
               [&](int c, int f) { return load_codeword(in, at, first_code + c, f); });
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    if (at.first + a >= at.end) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.size) continue;
      T* const to = line_of(dq, in.size, in, at, a);
      const Quad<A> before = load_quad(static_cast<const T*>(to), f, in.size, in.quads);
      if (terms != nullptr) {
        store_quad(line_of(terms, in.size, in, at, a), f, in.size, false, totals[chunk][i], A{1});
      }
#pragma unroll
      for (int n = 0; n < kQuad; ++n) totals[chunk][i][n] += before.x[n];
      store_quad(to, f, in.size, in.quads, totals[chunk][i], A{1});
    }
  }
}

// Computes dmeans for 64 codewords of a cache (x) and a slice of the features (y). It goes over the query heads of the
// group one after another.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    code_mean_gradient_kernel(T* dmeans, CodeOperands<T> in, CodeBackwardOperands<T> back) {
  using A = Wide<T>;
  const TileMemory<A> memory(false, false);
  const int code_tiles = ceil_div(in.codes, kTile);
  const int first_code = static_cast<int>(blockIdx.x) % code_tiles * kTile;
  const int line = static_cast<int>(blockIdx.x) / code_tiles;
  const int kv_head = line % in.kv_heads;
  const int block = line / in.kv_heads % (in.caches - 1);
  const int row = line / in.kv_heads / (in.caches - 1);
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  const int group = in.heads / in.kv_heads;

  Pairs<A> totals[kChunks] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int tile = 0; tile < in.tiles; ++tile) {
      const QueryTile at = query_tile(in, row, head, block, tile);
      if (at.first >= at.end) break;  // the whole block returns
      Pairs<A> p;
      code_logits(p, memory, in, at, first_code);
      probabilities(p, in, back, at);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          memory.weights[(thread_x() + j * kSide) * kWeightStride + thread_y() + i * kSide] = p[i][j];
        }
      }
      add_values(totals, memory, first_feature, in.value_size,
                 [&](int a, int f) { return load_dout(in, back, at, a, f); });
    }
  }
  const int64_t cache = means_of(in, row, cache_of(in, row, block, kv_head));
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int code = first_code + thread_y() + i * kSide;
    if (code >= in.codes) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.value_size) continue;
      store_quad(dmeans + (cache + code) * in.value_size, f, in.value_size, in.value_quads, totals[chunk][i], A{1});
    }
  }
}

void code_attention_backward(const Tensor& dq, const Tensor& du, const Tensor& dmeans, const Tensor& dout,
                             const Tensor& delta, const Tensor& lse, const ops::CodeAttentionInputs& in) {
  const CodeAttentionSizes s(in);
  check_code_attention_backward(s, dq, du, dmeans, dout, delta, lse, in);
  if (dout.numel() == 0) {
    if (dmeans.defined()) dmeans.zero();
    return;
  }
  const Device device = in.q.device();
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    CodeOperands<T> operands = operands_of<T>(in, s);
    operands.quads = operands.quads && in_quads<T>(s.size, {&dq});
    operands.value_quads =
        operands.value_quads && in_quads<T>(s.value_size, {&dout}) && in_quads<T>(s.value_size, {&dmeans});
    const CodeBackwardScratch scratch(s, du.defined(), dtype_of<A>(), device);
    const CodeBackwardOperands<T> back{dout.data<T>(), lse.data<A>(), delta.data<A>()};
    const auto sum_terms = [&] {
      const int64_t width = s.heads * s.size;
      if (!du.defined()) return;
      sum_columns(device, du.data<A>(), static_cast<const A*>(scratch.terms.data<A>()), s.rows * s.queries, width,
                  width, true);
    };
    A* const terms = du.defined() ? scratch.terms.data<A>() : nullptr;
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (codes_suit_tensor_cores(in, s, {&dq, &dout, &dmeans})) {
        code_gradients_on_tensor_cores(dq.data<T>(), terms, dmeans.defined() ? dmeans.data<T>() : nullptr, back, in, s);
        return sum_terms();
      }
    }
    const size_t shared = TileMemory<A>::bytes(false, false, false);
    with_chunks<T>(s.size, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      launch(code_query_gradient_kernel<T, kChunks>, query_blocks(operands, s.size, kChunks), kThreads, shared,
             dq.data<T>(), terms, operands, back);
    });
    sum_terms();
    if (!dmeans.defined()) return;
    with_chunks<T>(s.value_size, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(s.rows * (s.caches - 1) * s.kv_heads * ceil_div(s.codes, kTile)),
                        static_cast<unsigned>(ceil_div(s.value_size, int64_t{kChunks} * kTile)));
      launch(code_mean_gradient_kernel<T, kChunks>, blocks, kThreads, shared, dmeans.data<T>(), operands, back);
    });
  });
}

}  // namespace

void bind_vq_attention() {
  ops::code_attention.bind(DeviceKind::cuda, code_attention);
  ops::code_attention_backward.bind(DeviceKind::cuda, code_attention_backward);
}

}  // namespace quire::cuda
