// The gate between attention to the memory and to local keys, and how much probability went to the memory.
#include <cmath>
#include <limits>

#include "kernels/cuda/map.h"
#include "kernels/knn_sizes.h"

namespace quire::cuda {

namespace {

// g of a head; 0 in rows that are closed.
template <typename A>
__device__ inline A gate_of(const A* bias, const uint8_t* open, int64_t head, int64_t row) {
  return open != nullptr && open[row] == 0 ? A{0} : A{1} / (A{1} + std::exp(-bias[head]));
}

const uint8_t* flags_of(const Tensor& open) {
  return open.defined() ? open.data<uint8_t>() : nullptr;
}

template <typename T>
__global__ void gate_heads_kernel(T* out, const T* a, const T* b, const Wide<T>* bias, const uint8_t* open,
                                  int64_t count, int64_t tokens, int64_t heads, int64_t size) {
  using A = Wide<T>;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t line = i / size;
    const A g = gate_of(bias, open, line % heads, line / (tokens * heads));
    // What a closed gate hides may be anything.
    out[i] = g == 0 ? b[i] : narrow<T>(g * wide(a[i]) + (A{1} - g) * wide(b[i]));
  }
}

void gate_heads(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& open) {
  check_gate_heads("gate_heads", out, a, b, bias, open);
  dispatch(a.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(gate_heads_kernel<T>, blocks_for(out.numel()), kBlock, 0, out.data<T>(), a.data<T>(), b.data<T>(),
           bias.data<Wide<T>>(), flags_of(open), out.numel(), a.dim(1), a.dim(2), a.dim(3));
  });
}

// da, db, and partial [heads, parts]: sums over the tokens of a part.
template <typename T>
__global__ void gate_heads_backward_kernel(T* da, T* db, Wide<T>* partial, const T* dout, const T* a, const T* b,
                                           const Wide<T>* bias, const uint8_t* open, int64_t rows, int64_t tokens,
                                           int64_t size) {
  using A = Wide<T>;
  __shared__ A of_warps[kBlock / kWarp];
  const int64_t heads = gridDim.y;
  const int64_t head = blockIdx.y;
  const int64_t all = rows * tokens;
  const int64_t begin = all * blockIdx.x / gridDim.x;
  const int64_t values = (all * (blockIdx.x + 1) / gridDim.x - begin) * size;
  A sum = 0;
  for (int64_t i = threadIdx.x; i < values; i += blockDim.x) {
    const int64_t token = begin + i / size;
    const int64_t at = (token * heads + head) * size + i % size;
    const A g = gate_of(bias, open, head, token / tokens);
    const A gradient = wide(dout[at]);
    da[at] = narrow<T>(g * gradient);
    db[at] = narrow<T>((A{1} - g) * gradient);
    if (g != 0) sum += g * (A{1} - g) * gradient * (wide(a[at]) - wide(b[at]));
  }
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) partial[head * gridDim.x + blockIdx.x] = sum;
}

template <typename A>
__global__ void gate_heads_finish_kernel(A* dbias, const A* partial, int64_t parts) {
  __shared__ A of_warps[kBlock / kWarp];
  A sum = 0;
  for (int64_t part = threadIdx.x; part < parts; part += blockDim.x) sum += partial[blockIdx.x * parts + part];
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) dbias[blockIdx.x] += sum;
}

void gate_heads_backward(const Tensor& da, const Tensor& db, const Tensor& dbias, const Tensor& dout, const Tensor& a,
                         const Tensor& b, const Tensor& bias, const Tensor& open) {
  check_gate_heads("gate_heads_backward", dout, a, b, bias, open);
  check_gate_heads("gate_heads_backward", da, a, db, dbias, open);
  constexpr int64_t kOfBlock = 8 * kBlock;
  constexpr int64_t kMostParts = 512;
  const int64_t heads = a.dim(2);
  if (a.numel() == 0) return;
  const int64_t wanted = ceil_div(a.numel() / heads, kOfBlock);
  const int64_t parts = wanted < kMostParts ? wanted : kMostParts;
  dispatch(a.dtype(), [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    const Tensor partial = Tensor::empty({heads, parts}, bias.dtype(), a.device());
    launch(gate_heads_backward_kernel<T>, dim3(static_cast<unsigned>(parts), static_cast<unsigned>(heads)), kBlock, 0,
           da.data<T>(), db.data<T>(), partial.data<A>(), dout.data<T>(), a.data<T>(), b.data<T>(), bias.data<A>(),
           flags_of(open), a.dim(0), a.dim(1), a.dim(3));
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
