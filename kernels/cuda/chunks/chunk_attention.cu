// Attention to chosen chunks: a block takes a query and a head, and in the gradients of keys and values a warp takes a
// key. These are the simplest kernels that are right, and their speed on a GPU is unknown.
#include <limits>

#include "kernels/chunk_attention.h"
#include "kernels/chunk_sizes.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

constexpr int kChunkThreads = 64;

__global__ void chunk_reads_kernel(int32_t* begin, int32_t* reads, const int32_t* chosen, int64_t chunks,
                                   int64_t entries) {
  const int64_t part = blockIdx.x;
  const int32_t* const of = chosen + part * entries;
  int32_t* const first = begin + part * (chunks + 1);
  int32_t* const to = reads + part * entries;
  for (int64_t c = threadIdx.x; c < chunks; c += kChunkThreads) {
    int32_t count = 0;
    for (int64_t i = 0; i < entries; ++i) count += of[i] == c ? 1 : 0;
    first[c + 1] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    first[0] = 0;
    for (int64_t c = 0; c < chunks; ++c) first[c + 1] += first[c];
  }
  __syncthreads();
  for (int64_t c = threadIdx.x; c < chunks; c += kChunkThreads) {
    int32_t next = first[c];
    for (int64_t i = 0; i < entries; ++i) {
      if (of[i] == c) to[next++] = static_cast<int32_t>(i);
    }
  }
  for (int64_t i = first[chunks] + static_cast<int64_t>(threadIdx.x); i < entries; i += kChunkThreads) to[i] = -1;
}

template <typename T>
struct ChunkOperands {
  using W = Wide<T>;
  const T *q, *keys, *values;
  const W* weight;
  const int32_t *chosen, *begin, *reads;
  W scale;
  int64_t queries, heads, group, kv_heads, size, value_size, chunks, length, count, width;

  ChunkOperands(const ops::ChunkAttentionInputs& in, const ChunkSizes& s)
      : q(in.q.data<T>()),
        keys(in.keys.data<T>()),
        values(in.values.data<T>()),
        weight(in.weight.data<W>()),
        chosen(in.chosen.data<int32_t>()),
        begin(in.begin.data<int32_t>()),
        reads(in.reads.data<int32_t>()),
        scale(static_cast<W>(in.scale)),
        queries(s.queries),
        heads(s.heads),
        group(s.group()),
        kv_heads(s.kv_heads),
        size(s.size),
        value_size(s.value_size),
        chunks(s.chunks),
        length(s.length),
        count(s.chosen),
        width(s.width) {}

  // `line` is the index of a query in [R, T, H].
  __device__ int64_t part_of(int64_t line) const { return line / heads / queries * kv_heads + line % heads / group; }
  __device__ int64_t token_of(int64_t line) const { return line / heads % queries; }
  // Returns the index of an entry in [R, H, T, of].
  __device__ int64_t entry(int64_t line, int64_t of, int64_t n) const {
    return ((line / heads / queries * heads + line % heads) * queries + token_of(line)) * of + n;
  }
};

template <typename W, typename T>
__device__ W product(const T* a, const T* b, int64_t size) {
  W sum = 0;
  for (int64_t f = 0; f < size; ++f) sum += wide(a[f]) * wide(b[f]);
  return sum;
}

// A thread has its own keys, and then its own features.
template <typename T>
__global__ void chunk_attention_kernel(T* out, Wide<T>* lse, ChunkOperands<T> in) {
  using W = Wide<T>;
  constexpr W kNothing = -std::numeric_limits<W>::infinity();
  W* const p = dynamic_shared<W>();
  W* const total = p + in.length;
  __shared__ W partial[kChunkThreads / kWarp];
  const int64_t line = blockIdx.x, part = in.part_of(line);
  for (int64_t f = threadIdx.x; f < in.value_size; f += kChunkThreads) total[f] = 0;
  for (int64_t n = 0; n < in.count; ++n) {
    const int32_t chunk = in.chosen[(part * in.queries + in.token_of(line)) * in.count + n];
    if (chunk < 0) {
      if (threadIdx.x == 0) lse[in.entry(line, in.count, n)] = 0;
      continue;
    }
    const int64_t first = (part * in.chunks + chunk) * in.length;
    W top = kNothing;
    for (int64_t j = threadIdx.x; j < in.length; j += kChunkThreads) {
      p[j] = in.scale * product<W>(in.q + line * in.size, in.keys + (first + j) * in.size, in.size);
      top = p[j] > top || p[j] != p[j] ? p[j] : top;
    }
    top = warp_max(top);
    __syncthreads();
    if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = top;
    __syncthreads();
    for (int w = 0; w < kChunkThreads / kWarp; ++w)
      top = partial[w] > top || partial[w] != partial[w] ? partial[w] : top;
    __syncthreads();
    W sum = 0;
    for (int64_t j = threadIdx.x; j < in.length; j += kChunkThreads) {
      p[j] = std::exp(p[j] - top);
      sum += p[j];
    }
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) lse[in.entry(line, in.count, n)] = top + std::log(sum);
    const W factor = in.weight[in.entry(line, in.width, n)] / sum;
    for (int64_t f = threadIdx.x; f < in.value_size; f += kChunkThreads) {
      W given = 0;
      for (int64_t j = 0; j < in.length; ++j) given += p[j] * wide(in.values[(first + j) * in.value_size + f]);
      total[f] += factor * given;
    }
    __syncthreads();
  }
  for (int64_t f = threadIdx.x; f < in.value_size; f += kChunkThreads) {
    out[line * in.value_size + f] = narrow<T>(total[f]);
  }
}

// With D = sum over j of p_j dp_j, the gradient of the weight, the gradient of a logit is weight * p (dp - D).
template <typename T>
__global__ void chunk_queries_kernel(T* dq, Wide<T>* dweight, const T* dout, const Wide<T>* lse, ChunkOperands<T> in) {
  using W = Wide<T>;
  W* const ds = dynamic_shared<W>();
  W* const total = ds + in.length;
  __shared__ W partial[kChunkThreads / kWarp];
  const int64_t line = blockIdx.x, part = in.part_of(line);
  for (int64_t f = threadIdx.x; f < in.size; f += kChunkThreads) total[f] = 0;
  for (int64_t n = threadIdx.x; n < in.width; n += kChunkThreads) dweight[in.entry(line, in.width, n)] = 0;
  __syncthreads();
  for (int64_t n = 0; n < in.count; ++n) {
    const int32_t chunk = in.chosen[(part * in.queries + in.token_of(line)) * in.count + n];
    if (chunk < 0) continue;
    const int64_t first = (part * in.chunks + chunk) * in.length;
    const W log_sum = lse[in.entry(line, in.count, n)], weight = in.weight[in.entry(line, in.width, n)];
    W delta = 0;
    for (int64_t j = threadIdx.x; j < in.length; j += kChunkThreads) {
      const W logit = in.scale * product<W>(in.q + line * in.size, in.keys + (first + j) * in.size, in.size);
      const W dp = product<W>(dout + line * in.value_size, in.values + (first + j) * in.value_size, in.value_size);
      ds[j] = dp;
      delta += std::exp(logit - log_sum) * dp;
    }
    delta = block_sum(delta, partial);
    for (int64_t j = threadIdx.x; j < in.length; j += kChunkThreads) {
      const W logit = in.scale * product<W>(in.q + line * in.size, in.keys + (first + j) * in.size, in.size);
      ds[j] = weight * in.scale * std::exp(logit - log_sum) * (ds[j] - delta);
    }
    __syncthreads();
    if (threadIdx.x == 0) dweight[in.entry(line, in.width, n)] = delta;
    for (int64_t f = threadIdx.x; f < in.size; f += kChunkThreads) {
      W sum = 0;
      for (int64_t j = 0; j < in.length; ++j) sum += ds[j] * wide(in.keys[(first + j) * in.size + f]);
      total[f] += sum;
    }
    __syncthreads();
  }
  for (int64_t f = threadIdx.x; f < in.size; f += kChunkThreads) dq[line * in.size + f] = narrow<T>(total[f]);
}

// A lane has its own features of the key and its value.
template <typename T>
__global__ void chunk_keys_kernel(T* dkeys, T* dvalues, const Wide<T>* dweight, const T* dout, const Wide<T>* lse,
                                  ChunkOperands<T> in) {
  using W = Wide<T>;
  W* const dk = dynamic_shared<W>();
  W* const dv = dk + in.size;
  const int64_t key = blockIdx.x, part = key / in.length / in.chunks, chunk = key / in.length % in.chunks;
  const int32_t* const begin = in.begin + part * (in.chunks + 1) + chunk;
  for (int64_t f = threadIdx.x; f < in.size; f += kWarp) dk[f] = 0;
  for (int64_t f = threadIdx.x; f < in.value_size; f += kWarp) dv[f] = 0;
  for (int64_t i = begin[0]; i < begin[1]; ++i) {
    const int32_t read = in.reads[part * in.queries * in.count + i];
    const int64_t token = part / in.kv_heads * in.queries + read / in.count, n = read % in.count;
    for (int64_t h = 0; h < in.group; ++h) {
      const int64_t line = token * in.heads + part % in.kv_heads * in.group + h;
      W logit = 0, dp = 0;
      for (int64_t f = threadIdx.x; f < in.size; f += kWarp) {
        logit += wide(in.q[line * in.size + f]) * wide(in.keys[key * in.size + f]);
      }
      for (int64_t f = threadIdx.x; f < in.value_size; f += kWarp) {
        dp += wide(dout[line * in.value_size + f]) * wide(in.values[key * in.value_size + f]);
      }
      logit = warp_sum(logit);
      dp = warp_sum(dp);
      const W weighted =
          in.weight[in.entry(line, in.width, n)] * std::exp(in.scale * logit - lse[in.entry(line, in.count, n)]);
      const W ds = in.scale * weighted * (dp - dweight[in.entry(line, in.width, n)]);
      for (int64_t f = threadIdx.x; f < in.size; f += kWarp) dk[f] += ds * wide(in.q[line * in.size + f]);
      for (int64_t f = threadIdx.x; f < in.value_size; f += kWarp) {
        dv[f] += weighted * wide(dout[line * in.value_size + f]);
      }
    }
  }
  for (int64_t f = threadIdx.x; f < in.size; f += kWarp) dkeys[key * in.size + f] = narrow<T>(dk[f]);
  for (int64_t f = threadIdx.x; f < in.value_size; f += kWarp) {
    dvalues[key * in.value_size + f] = narrow<T>(dv[f]);
  }
}

dim3 blocks_of(int64_t count) {
  return dim3(static_cast<unsigned>(count));
}

void chunk_reads(const Tensor& begin, const Tensor& reads, const Tensor& chosen) {
  check_chunk_reads(begin, reads, chosen);
  launch(chunk_reads_kernel, blocks_of(chosen.dim(0) * chosen.dim(1)), kChunkThreads, 0, begin.data<int32_t>(),
         reads.data<int32_t>(), chosen.data<int32_t>(), begin.dim(2) - 1, reads.dim(2));
}

void chunk_attention(const Tensor& out, const Tensor& lse, const ops::ChunkAttentionInputs& in) {
  const ChunkSizes s(in);
  check_chunk_attention(s, out, lse, in);
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    const size_t shared = sizeof(W) * static_cast<size_t>(s.length + s.value_size);
    launch(chunk_attention_kernel<T>, blocks_of(s.rows * s.queries * s.heads), kChunkThreads, shared, out.data<T>(),
           lse.data<W>(), ChunkOperands<T>(in, s));
  });
}

void chunk_attention_backward(const ops::ChunkAttentionGradients& g, const Tensor& dout, const Tensor& lse,
                              const ops::ChunkAttentionInputs& in) {
  const ChunkSizes s(in);
  check_chunk_attention_backward(s, g, dout, lse, in);
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    launch(chunk_queries_kernel<T>, blocks_of(s.rows * s.queries * s.heads), kChunkThreads,
           sizeof(W) * static_cast<size_t>(s.length + s.size), g.dq.data<T>(), g.dweight.data<W>(), dout.data<T>(),
           lse.data<W>(), ChunkOperands<T>(in, s));
    launch(chunk_keys_kernel<T>, blocks_of(s.rows * s.kv_heads * s.chunks * s.length), kWarp,
           sizeof(W) * static_cast<size_t>(s.size + s.value_size), g.dkeys.data<T>(), g.dvalues.data<T>(),
           g.dweight.data<W>(), dout.data<T>(), lse.data<W>(), ChunkOperands<T>(in, s));
  });
}

}  // namespace

void bind_chunk_attention() {
  ops::chunk_reads.bind(DeviceKind::cuda, chunk_reads);
  ops::chunk_attention.bind(DeviceKind::cuda, chunk_attention);
  ops::chunk_attention_backward.bind(DeviceKind::cuda, chunk_attention_backward);
}

}  // namespace quire::cuda
