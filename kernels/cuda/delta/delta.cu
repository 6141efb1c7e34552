// The gated delta rule, token by token: a block per segment and head, with the state in memory. It is the simplest
// kernel that is right, and its speed on a GPU is unknown. Every value has one writer.
#include "kernels/delta.h"

#include "kernels/cuda/runtime.h"
#include "kernels/cuda_scratch.h"
#include "kernels/delta_sizes.h"

namespace quire::cuda {

namespace {

constexpr int kThreadsOfHead = 128;

template <typename T>
struct DeltaData {
  using W = Wide<T>;
  const T *q, *k, *v;
  const W *g, *erase, *write, *state;
  const int32_t* segments;
  W scale;
  int heads, value_heads, group, key, value, decay_features, erase_features, write_features;

  explicit DeltaData(const ops::DeltaInputs& in, const DeltaSizes& s)
      : q(in.q.data<T>()),
        k(in.k.data<T>()),
        v(in.v.data<T>()),
        g(in.g.data<W>()),
        erase(in.erase.defined() ? in.erase.data<W>() : nullptr),
        write(in.write.data<W>()),
        state(in.state.data<W>()),
        segments(in.segments.data<int32_t>()),
        scale(static_cast<W>(in.scale)),
        heads(static_cast<int>(s.heads)),
        value_heads(static_cast<int>(s.value_heads)),
        group(static_cast<int>(s.group)),
        key(static_cast<int>(s.key)),
        value(static_cast<int>(s.value)),
        decay_features(static_cast<int>(s.decay)),
        erase_features(static_cast<int>(s.erase)),
        write_features(static_cast<int>(s.write)) {}

  __device__ int64_t state_at(int64_t entry, int head) const { return (entry * value_heads + head) * key * value; }
  __device__ int64_t key_at(int64_t cell, int head) const { return (cell * heads + head / group) * key; }
  __device__ int64_t line(int64_t cell, int head) const { return cell * value_heads + head; }
  __device__ int64_t gate(int64_t cell, int head, int features, int feature) const {
    return line(cell, head) * features + (features == 1 ? 0 : feature);
  }
  __device__ int64_t value_at(int64_t cell, int head) const { return line(cell, head) * value; }
  __device__ W decay(int64_t cell, int head, int d) const { return std::exp(g[gate(cell, head, decay_features, d)]); }
  __device__ W erased(int64_t cell, int head, int d) const {
    return erase_features == 0 ? W{0} : erase[gate(cell, head, erase_features, d)] * wide(k[key_at(cell, head) + d]);
  }
  // Column j of the state `before` a token gives u, and that of the state after it.
  __device__ W step(const W* before, W* after, int64_t cell, int head, int j) const {
    W u = write[gate(cell, head, write_features, j)] * wide(v[value_at(cell, head) + j]);
    for (int d = 0; d < key; ++d) {
      const W decayed = before[d * value + j] * decay(cell, head, d);
      after[d * value + j] = decayed;
      if (erase_features != 0) u -= erased(cell, head, d) * decayed;
    }
    for (int d = 0; d < key; ++d) after[d * value + j] += wide(k[key_at(cell, head) + d]) * u;
    return u;
  }
};

template <typename T>
__global__ void delta_rule_kernel(T* out, Wide<T>* last, Wide<T>* chunks, DeltaData<T> in) {
  using W = Wide<T>;
  const int segment = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int64_t begin = in.segments[2 * segment], count = in.segments[2 * segment + 1];
  const W* const from = in.state + in.state_at(segment, head);
  W* const state = last + in.state_at(segment, head);
  for (int j = static_cast<int>(threadIdx.x); j < in.value; j += static_cast<int>(blockDim.x)) {
    for (int d = 0; d < in.key; ++d) state[d * in.value + j] = from[d * in.value + j];
    for (int64_t t = 0; t < count; ++t) {
      if (chunks != nullptr && t % ops::kDeltaChunk == 0) {
        W* const kept = chunks + in.state_at(begin / ops::kDeltaChunk + segment + t / ops::kDeltaChunk, head);
        for (int d = 0; d < in.key; ++d) kept[d * in.value + j] = state[d * in.value + j];
      }
      in.step(state, state, begin + t, head, j);
      W sum = 0;
      for (int d = 0; d < in.key; ++d) {
        sum += wide(in.q[in.key_at(begin + t, head) + d]) * state[d * in.value + j];
      }
      out[in.value_at(begin + t, head) + j] = narrow<T>(in.scale * sum);
    }
  }
}

template <typename T>
struct DeltaTo {
  using W = Wide<T>;
  T* dv;
  W *dq, *dk;  // [N, HV, Dk]: of each value head
  W *dg, *derase, *dwrite, *dstate;
  const T* dout;
  const W *dlast, *chunks;
  W* memory;  // as in DeltaBackwardScratch
  int64_t of_block;
};

template <typename T>
__global__ void delta_rule_backward_kernel(DeltaTo<T> to, DeltaData<T> in) {
  using W = Wide<T>;
  const int segment = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int key = in.key, value = in.value, size = key * value;
  const int64_t begin = in.segments[2 * segment], count = in.segments[2 * segment + 1];
  W* const ds = to.dstate + in.state_at(segment, head);
  W* const states = to.memory + (static_cast<int64_t>(segment) * in.value_heads + head) * to.of_block;
  W* const written = states + (ops::kDeltaChunk + 1) * size;
  W* const du = written + ops::kDeltaChunk * value;
  W* const by_key = du + value;  // terms of dg and derase
  for (int i = thread; i < size; i += threads) {
    ds[i] = to.dlast == nullptr ? W{0} : to.dlast[in.state_at(segment, head) + i];
  }
  for (int64_t chunk = (count + ops::kDeltaChunk - 1) / ops::kDeltaChunk - 1; chunk >= 0; --chunk) {
    const int64_t first = begin + chunk * ops::kDeltaChunk;
    const int64_t left = begin + count - first;
    const int tokens = static_cast<int>(left < ops::kDeltaChunk ? left : ops::kDeltaChunk);
    const W* const kept = to.chunks + in.state_at(begin / ops::kDeltaChunk + segment + chunk, head);
    for (int j = thread; j < value; j += threads) {
      for (int d = 0; d < key; ++d) states[d * value + j] = kept[d * value + j];
      for (int t = 0; t < tokens; ++t) {
        written[t * value + j] = in.step(states + t * size, states + (t + 1) * size, first + t, head, j);
      }
    }
    __syncthreads();
    for (int t = tokens - 1; t >= 0; --t) {
      const int64_t cell = first + t;
      const W* const before = states + t * size;
      const W* const after = before + size;
      const W* const u = written + t * value;
      const T* const dout = to.dout + in.value_at(cell, head);
      for (int d = thread; d < key; d += threads) {
        W sum = 0, dk = 0;
        for (int j = 0; j < value; ++j) {
          sum += after[d * value + j] * wide(dout[j]);
          ds[d * value + j] += in.scale * wide(in.q[in.key_at(cell, head) + d]) * wide(dout[j]);
          dk += ds[d * value + j] * u[j];
        }
        to.dq[in.line(cell, head) * key + d] = in.scale * sum;
        to.dk[in.line(cell, head) * key + d] = dk;
      }
      __syncthreads();
      for (int j = thread; j < value; j += threads) {
        W sum = 0;
        for (int d = 0; d < key; ++d) sum += ds[d * value + j] * wide(in.k[in.key_at(cell, head) + d]);
        du[j] = sum;
        to.dv[in.value_at(cell, head) + j] = narrow<T>(in.write[in.gate(cell, head, in.write_features, j)] * sum);
        if (in.write_features > 1) {
          to.dwrite[in.gate(cell, head, in.write_features, j)] = wide(in.v[in.value_at(cell, head) + j]) * sum;
        }
      }
      __syncthreads();
      for (int d = thread; d < key; d += threads) {
        const W decay = in.decay(cell, head, d), erased = in.erased(cell, head, d);
        W read = 0, decayed = 0;
        for (int j = 0; j < value; ++j) {
          const W old = decay * before[d * value + j];
          read -= old * du[j];
          W& line = ds[d * value + j];
          if (in.erase_features != 0) line -= erased * du[j];
          decayed += line * old;
          line *= decay;
        }
        by_key[d] = decayed;
        by_key[key + d] = wide(in.k[in.key_at(cell, head) + d]) * read;
        if (in.erase_features != 0) {
          to.dk[in.line(cell, head) * key + d] += in.erase[in.gate(cell, head, in.erase_features, d)] * read;
        }
        if (in.decay_features > 1) to.dg[in.gate(cell, head, in.decay_features, d)] = decayed;
        if (in.erase_features > 1) to.derase[in.gate(cell, head, in.erase_features, d)] = by_key[key + d];
      }
      __syncthreads();
      if (thread == 0) {
        W dg = 0, derase = 0, dwrite = 0;
        for (int d = 0; d < key; ++d) {
          dg += by_key[d];
          derase += by_key[key + d];
        }
        for (int j = 0; j < value; ++j) dwrite += wide(in.v[in.value_at(cell, head) + j]) * du[j];
        if (in.decay_features == 1) to.dg[in.line(cell, head)] = dg;
        if (in.erase_features == 1) to.derase[in.line(cell, head)] = derase;
        if (in.write_features == 1) to.dwrite[in.line(cell, head)] = dwrite;
      }
      __syncthreads();
    }
  }
}

// to [N, H, Dk] = sum over the value heads of a key head.
template <typename T>
__global__ void sum_value_heads_kernel(T* to, const Wide<T>* from, int64_t count, int group, int key) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    Wide<T> sum = 0;
    for (int n = 0; n < group; ++n) sum += from[(i / key * group + n) * key + i % key];
    to[i] = narrow<T>(sum);
  }
}

dim3 blocks_of(const DeltaSizes& s) {
  return dim3(static_cast<unsigned>(s.segments), static_cast<unsigned>(s.value_heads));
}

void delta_rule(const Tensor& out, const Tensor& last, const Tensor& chunks, const ops::DeltaInputs& in) {
  const DeltaSizes s(in);
  out.zero();
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(delta_rule_kernel<T>, blocks_of(s), kThreadsOfHead, 0, out.data<T>(), last.data<Wide<T>>(),
           chunks.defined() ? chunks.data<Wide<T>>() : nullptr, DeltaData<T>(in, s));
  });
}

void delta_rule_backward(const ops::DeltaGradients& to, const Tensor& dout, const Tensor& dlast, const Tensor& chunks,
                         const ops::DeltaInputs& in) {
  const DeltaSizes s(in);
  const DeltaBackwardScratch scratch(s, in.state.dtype(), in.q.device());
  scratch.dq.zero();
  scratch.dk.zero();
  for (const Tensor* tensor : {&to.dv, &to.dg, &to.derase, &to.dwrite}) {
    if (tensor->defined()) tensor->zero();  // cells outside segments
  }
  dispatch(in.q.dtype(), [&](auto element) {
    using T = decltype(element);
    using W = Wide<T>;
    const DeltaTo<T> results{to.dv.data<T>(),
                             scratch.dq.data<W>(),
                             scratch.dk.data<W>(),
                             to.dg.data<W>(),
                             to.derase.defined() ? to.derase.data<W>() : nullptr,
                             to.dwrite.data<W>(),
                             to.dstate.data<W>(),
                             dout.data<T>(),
                             dlast.defined() ? dlast.data<W>() : nullptr,
                             chunks.data<W>(),
                             scratch.memory.data<W>(),
                             scratch.memory.dim(1)};
    launch(delta_rule_backward_kernel<T>, blocks_of(s), kThreadsOfHead, 0, results, DeltaData<T>(in, s));
    const int group = static_cast<int>(s.group), key = static_cast<int>(s.key);
    const int64_t count = in.q.numel();
    launch(sum_value_heads_kernel<T>, blocks_for(count), kBlock, 0, to.dq.data<T>(), scratch.dq.data<W>(), count, group,
           key);
    launch(sum_value_heads_kernel<T>, blocks_for(count), kBlock, 0, to.dk.data<T>(), scratch.dk.data<W>(), count, group,
           key);
  });
}

}  // namespace

void bind_delta() {
  ops::delta_rule.bind(DeviceKind::cuda, delta_rule);
  ops::delta_rule_backward.bind(DeviceKind::cuda, delta_rule_backward);
}

}  // namespace quire::cuda
