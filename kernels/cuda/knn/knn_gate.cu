// The gate between attention to the memory and attention to local keys, and the share of probability that goes to the
// memory.
#include <cmath>
#include <limits>

#include "kernels/cuda/basic/map.h"
#include "kernels/knn_sizes.h"

namespace quire::cuda {

namespace {

// Returns the gate g of a line of [R, T, H]; 0 in rows that are closed.
template <typename T>
struct Gates {
  using A = Wide<T>;
  const A* bias;
  const T* content;
  const uint8_t* open;
  int64_t tokens, heads;

  Gates(const Tensor& a, const Tensor& biases, const Tensor& contents, const Tensor& flags)
      : bias(biases.data<A>()),
        content(contents.defined() ? contents.data<T>() : nullptr),
        open(flags.defined() ? flags.data<uint8_t>() : nullptr),
        tokens(a.dim(1)),
        heads(a.dim(2)) {}

  __device__ A at(int64_t line) const {
    if (open != nullptr && open[line / (tokens * heads)] == 0) return A{0};
    const A x = content == nullptr ? bias[line % heads] : bias[line % heads] + wide(content[line]);
    return A{1} / (A{1} + std::exp(-x));
  }
};

// Mixes a and b by the gates. A pack lies within a head.
template <typename T, int kPack>
__global__ void gate_heads_kernel(T* out, const T* a, const T* b, Gates<T> gates, int64_t count, int64_t size,
                                  bool aligned) {
  using A = Wide<T>;
  for (int64_t i = first_element() * kPack; i < count; i += element_stride() * kPack) {
    const A g = gates.at(i / size);
    Pack<T, kPack> to = load<kPack>(b + i, aligned);
    // Values behind a closed gate may be NaN.
    if (g != 0) {
      const Pack<T, kPack> from = load<kPack>(a + i, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        to.value[k] = narrow<T>(g * wide(from.value[k]) + (A{1} - g) * wide(to.value[k]));
      }
    }
    store<kPack>(out + i, to, aligned);
  }
}

void gate_heads(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& content,
                const Tensor& open) {
  check_gate_heads("gate_heads", out, a, b, bias, content, open);
  const bool aligned = are_aligned({out.raw(), a.raw(), b.raw()});
  dispatch(a.dtype(), [&](auto type) {
    using T = decltype(type);
    with_pack<T>(a.dim(3), [&](auto pack) {
      constexpr int kPack = decltype(pack)::value;
      launch(gate_heads_kernel<T, kPack>, blocks_for(out.numel() / kPack), kBlock, 0, out.data<T>(), a.data<T>(),
             b.data<T>(), Gates<T>(a, bias, content, open), out.numel(), a.dim(3), aligned);
    });
  });
}

constexpr int kTokensOfWarp = 4;
constexpr int kTokensOfBlock = kBlock / kWarp * kTokensOfWarp;

// Computes da, db, dcontent, and partial [heads, parts], the sums over the tokens of a block. A warp takes a token of a
// head.
template <typename T>
__global__ void gate_heads_backward_kernel(T* da, T* db, T* dcontent, Wide<T>* partial, const T* dout, const T* a,
                                           const T* b, Gates<T> gates, int64_t tokens, int64_t size) {
  using A = Wide<T>;
  __shared__ A of_warps[kBlock / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t head = blockIdx.y;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTokensOfBlock + threadIdx.x / kWarp * kTokensOfWarp;
  A all = 0;
  for (int64_t token = first; token < first + kTokensOfWarp && token < tokens; ++token) {
    const int64_t line = token * gates.heads + head;
    const A g = gates.at(line);
    A sum = 0;
    for (int64_t at = line * size + lane; at < (line + 1) * size; at += kWarp) {
      const A gradient = wide(dout[at]);
      da[at] = narrow<T>(g * gradient);
      db[at] = narrow<T>((A{1} - g) * gradient);
      if (g != 0) sum += gradient * (wide(a[at]) - wide(b[at]));
    }
    const A slope = g == 0 ? A{0} : g * (A{1} - g) * warp_sum(sum);
    if (dcontent != nullptr && lane == 0) dcontent[line] = narrow<T>(slope);
    all += slope;
  }
  // Every lane has the sum of its warp.
  all = block_sum(lane == 0 ? all : A{0}, of_warps);
  if (threadIdx.x == 0) partial[head * gridDim.x + blockIdx.x] = all;
}

template <typename A>
__global__ void gate_heads_finish_kernel(A* dbias, const A* partial, int64_t parts) {
  __shared__ A of_warps[kBlock / kWarp];
  A sum = 0;
  for (int64_t part = threadIdx.x; part < parts; part += blockDim.x) sum += partial[blockIdx.x * parts + part];
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) dbias[blockIdx.x] += sum;
}

void gate_heads_backward(const Tensor& da, const Tensor& db, const Tensor& dbias, const Tensor& dcontent,
                         const Tensor& dout, const Tensor& a, const Tensor& b, const Tensor& bias,
                         const Tensor& content, const Tensor& open) {
  check_gate_heads_backward(da, db, dbias, dcontent, dout, a, b, bias, content, open);
  const int64_t heads = a.dim(2);
  const int64_t tokens = a.dim(0) * a.dim(1);
  const int64_t parts = ceil_div(tokens, kTokensOfBlock);
  if (parts == 0 || heads == 0) return;
  dispatch(a.dtype(), [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    const Tensor partial = Tensor::empty({heads, parts}, bias.dtype(), a.device());
    launch(gate_heads_backward_kernel<T>, dim3(static_cast<unsigned>(parts), static_cast<unsigned>(heads)), kBlock, 0,
           da.data<T>(), db.data<T>(), dcontent.defined() ? dcontent.data<T>() : nullptr, partial.data<A>(),
           dout.data<T>(), a.data<T>(), b.data<T>(), Gates<T>(a, bias, content, open), tokens, a.dim(3));
    launch(gate_heads_finish_kernel<A>, dim3(static_cast<unsigned>(heads)), kBlock, 0, dbias.data<A>(),
           static_cast<const A*>(partial.data<A>()), parts);
  });
}

struct Share {
  template <typename A>
  __device__ void operator()(A (&y)[1], const A (&x)[2]) const {
    const bool empty = x[1] == -std::numeric_limits<A>::infinity();
    y[0] = empty ? A{0} : -std::expm1(x[0] - x[1]);
  }
};

void softmax_share(const Tensor& share, const Tensor& part, const Tensor& whole) {
  check_softmax_share(share, part, whole);
  dispatch_wide(share.dtype(), [&](auto type) { map<decltype(type)>(Share{}, {&share}, {&part, &whole}); });
}

}  // namespace

void bind_knn_gate() {
  ops::gate_heads.bind(DeviceKind::cuda, gate_heads);
  ops::gate_heads_backward.bind(DeviceKind::cuda, gate_heads_backward);
  ops::softmax_share.bind(DeviceKind::cuda, softmax_share);
}

}  // namespace quire::cuda
