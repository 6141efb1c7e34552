// Attention to stored blocks: a warp takes a query and a head, reads the blocks one after the other where they lie, 32
// keys at a time, and keeps the query, turned for the block, and the sums over keys in shared memory.
#include <cmath>
#include <limits>

#include "kernels/block_attention.h"
#include "kernels/block_sizes.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

template <typename T, typename S>
struct StoredOperands {
  using A = Wide<T>;
  const T* q;
  const S *keys, *values;
  const int32_t *slot, *turn;
  const A* table;
  int64_t lines, slots, entries;
  int queries, heads, kv_heads, size, value_size, chosen, length, pairs;
  A scale;
  bool landmarks, interleaved;

  StoredOperands(const ops::StoredAttentionInputs& in, const StoredSizes& s)
      : q(in.q.data<T>()),
        keys(in.keys.data<S>()),
        values(in.values.data<S>()),
        slot(in.slot.data<int32_t>()),
        turn(in.turn.defined() ? in.turn.data<int32_t>() : nullptr),
        table(in.table.defined() ? in.table.data<A>() : nullptr),
        lines(s.rows * s.queries * s.heads),
        slots(in.keys.dim(0)),
        entries(in.table.defined() ? in.table.dim(0) : 0),
        queries(static_cast<int>(s.queries)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        size(static_cast<int>(s.size)),
        value_size(static_cast<int>(s.value_size)),
        chosen(static_cast<int>(s.chosen)),
        length(static_cast<int>(s.length)),
        pairs(in.table.defined() ? static_cast<int>(in.table.dim(2)) : 0),
        scale(static_cast<A>(in.scale)),
        landmarks(in.landmarks),
        interleaved(in.interleaved) {}

  // Of a line of [R, T, H]: its place in [R, H, T].
  __device__ int64_t lse_of(int64_t line) const {
    return (line / heads / queries * heads + line % heads) * queries + line / heads % queries;
  }
  // The n-th block of a line; -1: none, and also a slot that is not there, since the host does not see slots.
  __device__ int64_t block_of(int64_t line, int n) const {
    const int64_t block = slot[line * chosen + n];
    return block < slots ? block : -1;
  }
  // The cosines of a block's turn, sines behind them; null without a table.
  __device__ const A* angles_of(int64_t line, int n) const {
    if (table == nullptr) return nullptr;
    int64_t back = turn[line * chosen + n];
    back = back < 0 ? 0 : (back < entries ? back : entries - 1);
    return table + back * 2 * pairs;
  }
  __device__ int64_t first_vector(int64_t line, int64_t block) const {
    return block * length * kv_heads + line % heads / (heads / kv_heads);
  }
  __device__ int64_t key_stride() const { return int64_t{kv_heads} * size; }
  __device__ int64_t value_stride() const { return int64_t{kv_heads} * value_size; }
  __device__ const S* key(int64_t first, int j) const { return keys + first * size + j * key_stride(); }
  __device__ const S* value(int64_t first, int j) const { return values + first * value_size + j * value_stride(); }
  __device__ int regular() const { return length - (landmarks ? 1 : 0); }
};

template <typename A, typename S>
__device__ inline A number(S value) {
  if constexpr (std::is_same_v<S, bfloat16>) {
    return static_cast<float>(value);
  } else {
    return static_cast<A>(value);
  }
}

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

// The product of two vectors, for all lanes.
template <typename A, typename X, typename Y>
__device__ inline A dot(const X* x, const Y* y, int size) {
  A sum = 0;
  for (int d = lane_of_warp(); d < size; d += kWarp) sum += number<A>(x[d]) * number<A>(y[d]);
  return warp_sum(sum);
}

// y = x turned by angles, or turned back; pairs of features as in RotaryInputs. Both are in shared memory, and all
// lanes are through with y. Ends with a barrier of the warp.
template <typename A>
__device__ inline void turn_vector(A* y, const A* x, const A* angles, int pairs, int size, bool back,
                                   bool interleaved) {
  if (angles == nullptr) pairs = 0;
  for (int i = lane_of_warp(); i < pairs; i += kWarp) {
    const int at = interleaved ? 2 * i : i;
    const int second = at + (interleaved ? 1 : pairs);
    const A a = x[at];
    const A b = x[second];
    const A sine = back ? -angles[pairs + i] : angles[pairs + i];
    y[at] = a * angles[i] - b * sine;
    y[second] = a * sine + b * angles[i];
  }
  for (int d = 2 * pairs + lane_of_warp(); d < size; d += kWarp) y[d] = x[d];
  __syncwarp();
}

// Vectors and weights of a warp.
template <typename A>
struct WarpVectors {
  A* next;

  // Of `numbers` in all: the warp's share of shared memory.
  __device__ explicit WarpVectors(int numbers) : next(dynamic_shared<A>() + threadIdx.x / kWarp * numbers) {}
  __device__ A* take(int count) {
    A* const taken = next;
    next += count;
    return taken;
  }
};

// The scaled query of a line.
template <typename T, typename S>
__device__ inline void load_query(Wide<T>* to, const StoredOperands<T, S>& in, int64_t line) {
  for (int d = lane_of_warp(); d < in.size; d += kWarp) to[d] = wide(in.q[line * in.size + d]) * in.scale;
  __syncwarp();
}

// Lane j gets the sum of its sums[j] over the lanes, for j < 2 kHalf: one exchange for each two sums, until one is
// left.
template <int kHalf, typename A>
__device__ inline A sum_for_each_lane(A (&sums)[kWarp]) {
  const bool upper = (lane_of_warp() & kHalf) != 0;
#pragma unroll
  for (int j = 0; j < kHalf; ++j) {
    const A given = __shfl_xor_sync(kAllLanes, upper ? sums[j] : sums[j + kHalf], kHalf);
    sums[j] = (upper ? sums[j + kHalf] : sums[j]) + given;
  }
  if constexpr (kHalf > 1) {
    return sum_for_each_lane<kHalf / 2>(sums);
  } else {
    return sums[0];
  }
}

// Lane j gets the product of x and the j-th of `count` vectors, `stride` apart. All lanes read a vector together.
template <typename A, typename X, typename S>
__device__ inline A dots(const X* x, const S* vectors, int count, int64_t stride, int size) {
  A sums[kWarp] = {};
  for (int d = lane_of_warp(); d < size; d += kWarp) {
    const A feature = number<A>(x[d]);
    const S* at = vectors + d;
#pragma unroll
    for (int j = 0; j < kWarp; ++j) {
      if (j >= count) continue;
      sums[j] += feature * number<A>(*at);
      at += stride;
    }
  }
  return sum_for_each_lane<kWarp / 2>(sums);
}

// An online softmax within a block; alike in all lanes.
template <typename A>
struct OnlineSoftmax {
  A top = std::numeric_limits<A>::lowest();  // finite: differences are no NaN
  A sum = 0;

  // A lane's logit, -inf for none, to its weight; returns what multiplies earlier sums.
  __device__ A take(A& logit) {
    A largest = warp_max(logit);
    largest = largest > top || largest != largest ? largest : top;
    const A correction = std::exp(top - largest);
    logit = std::exp(logit - largest);
    sum = sum * correction + warp_sum(logit);
    top = largest;
    return correction;
  }
};

template <typename T, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    stored_attention_kernel(T* out, Wide<T>* lse, StoredOperands<T, S> in, int numbers) {
  using A = Wide<T>;
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  WarpVectors<A> vectors(numbers);
  A* const q = vectors.take(in.size);
  A* const turned = vectors.take(in.size);
  A* const total = vectors.take(in.value_size);
  A* const of_block = vectors.take(in.value_size);
  A* const weights = vectors.take(kWarp);
  const int lane = lane_of_warp();
  const int64_t line = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (line >= in.lines) return;  // whole warps; there is no barrier of the block
  load_query(q, in, line);
  for (int f = lane; f < in.value_size; f += kWarp) total[f] = 0;  // a lane keeps to its features
  A top = std::numeric_limits<A>::lowest();
  A sum = 0;
  for (int n = 0; n < in.chosen; ++n) {
    const int64_t block = in.block_of(line, n);
    if (block < 0) continue;
    const int64_t first = in.first_vector(line, block);
    turn_vector(turned, q, in.angles_of(line, n), in.pairs, in.size, false, in.interleaved);
    for (int f = lane; f < in.value_size; f += kWarp) of_block[f] = 0;
    OnlineSoftmax<A> softmax;
    for (int begin = 0; begin < in.regular(); begin += kWarp) {
      const int count = in.regular() - begin < kWarp ? in.regular() - begin : kWarp;
      A weight = dots<A>(turned, in.key(first, begin), count, in.key_stride(), in.size);
      if (lane >= count) weight = kNothing;
      const A correction = softmax.take(weight);
      weights[lane] = weight;
      __syncwarp();
      for (int f = lane; f < in.value_size; f += kWarp) {
        A more = 0;
        for (int j = 0; j < count; ++j) more += weights[j] * number<A>(in.value(first, begin + j)[f]);
        of_block[f] = of_block[f] * correction + more;
      }
      __syncwarp();
    }
    if (softmax.sum == 0) continue;  // all logits are -inf
    const A gate = in.landmarks ? dot<A>(turned, in.key(first, in.regular()), in.size) : softmax.top;
    const A largest = gate > top || gate != gate ? gate : top;
    const A correction = std::exp(top - largest);
    const A share = std::exp(gate - largest);
    sum = sum * correction + (in.landmarks ? share : share * softmax.sum);
    const A factor = in.landmarks ? share / softmax.sum : share;
    for (int f = lane; f < in.value_size; f += kWarp) total[f] = total[f] * correction + of_block[f] * factor;
    top = largest;
    __syncwarp();
  }
  const bool empty = sum == 0;
  for (int f = lane; f < in.value_size; f += kWarp) {
    out[line * in.value_size + f] = narrow<T>(empty ? A{0} : total[f] / sum);
  }
  if (lane == 0) lse[in.lse_of(line)] = empty ? kNothing : top + std::log(sum);
}

// With the share a of a landmark and P the softmax within its block, the logit of a key has the gradient
// a P (dw - sum of P dw), and that of the landmark a (sum of P dw - delta). Since the sum is known when the keys have
// been read, two sums of keys are taken along: by P dw and by P. Without landmarks the first one, by p (dw - delta).
template <typename T, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    stored_attention_backward_kernel(T* dq, const T* dout, const Wide<T>* dlse, const T* out, const Wide<T>* lse,
                                     StoredOperands<T, S> in, int numbers) {
  using A = Wide<T>;
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  WarpVectors<A> vectors(numbers);
  A* const q = vectors.take(in.size);
  A* const turned = vectors.take(in.size);
  A* const total = vectors.take(in.size);
  A* const by_gradient = vectors.take(in.size);
  A* const by_weight = vectors.take(in.size);
  A* const gradients = vectors.take(kWarp);
  A* const weights = vectors.take(kWarp);
  const int lane = lane_of_warp();
  const int64_t line = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (line >= in.lines) return;
  const T* const dy = dout + line * in.value_size;
  const A log_sum = lse[in.lse_of(line)];
  A delta = dot<A>(dy, out + line * in.value_size, in.value_size);
  if (dlse != nullptr) delta -= dlse[in.lse_of(line)];
  load_query(q, in, line);
  for (int d = lane; d < in.size; d += kWarp) total[d] = 0;
  __syncwarp();
  for (int n = 0; n < in.chosen && log_sum != kNothing; ++n) {
    const int64_t block = in.block_of(line, n);
    if (block < 0) continue;
    const int64_t first = in.first_vector(line, block);
    const A* const angles = in.angles_of(line, n);
    turn_vector(turned, q, angles, in.pairs, in.size, false, in.interleaved);
    for (int d = lane; d < in.size; d += kWarp) by_gradient[d] = by_weight[d] = 0;
    OnlineSoftmax<A> softmax;
    A inner = 0;
    for (int begin = 0; begin < in.regular(); begin += kWarp) {
      const int count = in.regular() - begin < kWarp ? in.regular() - begin : kWarp;
      A weight = dots<A>(turned, in.key(first, begin), count, in.key_stride(), in.size);
      if (lane >= count) weight = kNothing;
      const A dw = dots<A>(dy, in.value(first, begin), count, in.value_stride(), in.value_size);
      A correction = 1;
      if (in.landmarks) {
        correction = softmax.take(weight);
        inner = inner * correction + warp_sum(weight * dw);
        gradients[lane] = weight * dw;
        weights[lane] = weight;
      } else {
        gradients[lane] = std::exp(weight - log_sum) * (dw - delta);
      }
      __syncwarp();
      for (int d = lane; d < in.size; d += kWarp) {
        A by_dw = 0;
        A by_p = 0;
        for (int j = 0; j < count; ++j) {
          const A key = number<A>(in.key(first, begin + j)[d]);
          by_dw += gradients[j] * key;
          if (in.landmarks) by_p += weights[j] * key;
        }
        by_gradient[d] = by_gradient[d] * correction + by_dw;
        by_weight[d] = by_weight[d] * correction + by_p;
      }
      __syncwarp();
    }
    if (in.landmarks) {
      if (softmax.sum == 0) continue;
      const S* const landmark = in.key(first, in.regular());
      const A share = std::exp(dot<A>(turned, landmark, in.size) - log_sum);
      inner /= softmax.sum;
      for (int d = lane; d < in.size; d += kWarp) {
        const A within = (by_gradient[d] - inner * by_weight[d]) / softmax.sum;
        by_gradient[d] = share * (within + (inner - delta) * number<A>(landmark[d]));
      }
    }
    __syncwarp();
    turn_vector(turned, by_gradient, angles, in.pairs, in.size, true, in.interleaved);
    for (int d = lane; d < in.size; d += kWarp) total[d] += turned[d];
    __syncwarp();
  }
  for (int d = lane; d < in.size; d += kWarp) dq[line * in.size + d] = narrow<T>(total[d] * in.scale);
}

// As many warps in a block as there is room for.
template <typename A>
int warps_for(int64_t numbers) {
  constexpr int64_t kRoom = int64_t{48} << 10;
  const int64_t most = kRoom / (numbers * static_cast<int64_t>(sizeof(A)));
  return static_cast<int>(most < 1 ? 1 : most < 8 ? most : 8);
}

// Calls function(T{}, S{}) with the types of queries and of what is stored.
template <typename Function>
void dispatch_stored(const ops::StoredAttentionInputs& in, Function&& function) {
  dispatch(in.q.dtype(), [&](auto type) {
    if (in.keys.dtype() == in.q.dtype()) return function(type, type);
    if constexpr (!std::is_same_v<decltype(type), bfloat16>) function(type, bfloat16{});
  });
}

// kernel(line of the grid's blocks ..., numbers): `numbers` of shared memory for a warp.
template <typename A, typename Launch>
void launch_warps(int64_t lines, int64_t numbers, Launch&& launch_with) {
  const int warps = warps_for<A>(numbers);
  launch_with(dim3(static_cast<unsigned>(ceil_div(lines, warps))), warps * kWarp,
              static_cast<size_t>(warps * numbers) * sizeof(A), static_cast<int>(numbers));
}

void stored_attention(const Tensor& out, const Tensor& lse, const ops::StoredAttentionInputs& in) {
  const StoredSizes s(in);
  check_stored_attention(s, out, lse, in);
  dispatch_stored(in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    using A = Wide<T>;
    const StoredOperands<T, S> operands(in, s);
    launch_warps<A>(operands.lines, 2 * s.size + 2 * s.value_size + kWarp,
                    [&](dim3 blocks, int threads, size_t bytes, int numbers) {
                      launch(stored_attention_kernel<T, S>, blocks, threads, bytes, out.data<T>(), lse.data<A>(),
                             operands, numbers);
                    });
  });
}

void stored_attention_backward(const Tensor& dq, const Tensor& dout, const Tensor& dlse, const Tensor& out,
                               const Tensor& lse, const ops::StoredAttentionInputs& in) {
  const StoredSizes s(in);
  check_stored_attention_backward(s, dq, dout, dlse, out, lse, in);
  dispatch_stored(in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    using A = Wide<T>;
    const StoredOperands<T, S> operands(in, s);
    launch_warps<A>(operands.lines, 5 * s.size + 2 * kWarp, [&](dim3 blocks, int threads, size_t bytes, int numbers) {
      launch(stored_attention_backward_kernel<T, S>, blocks, threads, bytes, dq.data<T>(), dout.data<T>(),
             dlse.defined() ? dlse.data<A>() : nullptr, out.data<T>(), lse.data<A>(), operands, numbers);
    });
  });
}

}  // namespace

void bind_stored_attention() {
  ops::stored_attention.bind(DeviceKind::cuda, stored_attention);
  ops::stored_attention_backward.bind(DeviceKind::cuda, stored_attention_backward);
}

}  // namespace quire::cuda
