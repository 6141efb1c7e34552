// Attention to stored blocks: a warp takes a query and a head, reads the blocks one after the other where they lie, 32
// keys at a time, and keeps the query, rotated for the block, and the sums over keys in shared memory. In bf16 most
// calls go to tensor cores instead (stored_mma.h).
#include "kernels/cuda/blocks/stored_blocks.h"
#include "kernels/cuda/blocks/stored_mma.h"

namespace quire::cuda {

namespace {

template <typename T, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    stored_attention_kernel(T* out, Wide<T>* lse, StoredOperands<T, S> in, int numbers) {
  using A = Wide<T>;
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  WarpVectors<A> vectors(numbers);
  A* const q = vectors.take(in.size);
  A* const rotated = vectors.take(in.size);
  A* const total = vectors.take(in.value_size);
  A* const of_block = vectors.take(in.value_size);
  A* const weights = vectors.take(kWarp);
  const int lane = lane_of_warp();
  const int64_t line = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (line >= in.lines) return;  // whole warps return, and the block has no barrier
  load_query(q, in, line);
  for (int f = lane; f < in.value_size; f += kWarp) total[f] = 0;  // each lane has its own features
  A top = std::numeric_limits<A>::lowest();
  A sum = 0;
  for (int n = 0; n < in.chosen; ++n) {
    const int64_t block = in.block_of(line, n);
    if (block < 0) continue;
    const int64_t first = in.first_vector(line, block);
    rotate_vector(rotated, q, in.angles_of(line, n), in.pairs, in.size, false, in.interleaved);
    for (int f = lane; f < in.value_size; f += kWarp) of_block[f] = 0;
    OnlineSoftmax<A> softmax;
    for (int begin = 0; begin < in.regular(); begin += kWarp) {
      const int count = in.regular() - begin < kWarp ? in.regular() - begin : kWarp;
      A weight = dots<A>(rotated, in.key(first, begin), count, in.key_stride(), in.size);
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
    const A gate = in.landmarks ? dot<A>(rotated, in.key(first, in.regular()), in.size) : softmax.top;
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

// With the share a of a landmark and P the softmax within its block, the logit of a key has the gradient a P (dw - sum
// of P dw), and that of the landmark a (sum of P dw - delta). Since the sum of P dw is known only after all keys have
// been read, two sums of keys are computed: one weighted by P dw and one by P. Without landmarks one sum is, weighted
// by p (dw - delta).
template <typename T, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    stored_attention_backward_kernel(T* dq, const T* dout, const Wide<T>* dlse, const T* out, const Wide<T>* lse,
                                     StoredOperands<T, S> in, int numbers) {
  using A = Wide<T>;
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  WarpVectors<A> vectors(numbers);
  A* const q = vectors.take(in.size);
  A* const rotated = vectors.take(in.size);
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
    rotate_vector(rotated, q, angles, in.pairs, in.size, false, in.interleaved);
    for (int d = lane; d < in.size; d += kWarp) by_gradient[d] = by_weight[d] = 0;
    OnlineSoftmax<A> softmax;
    A inner = 0;
    for (int begin = 0; begin < in.regular(); begin += kWarp) {
      const int count = in.regular() - begin < kWarp ? in.regular() - begin : kWarp;
      A weight = dots<A>(rotated, in.key(first, begin), count, in.key_stride(), in.size);
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
      const A share = std::exp(dot<A>(rotated, landmark, in.size) - log_sum);
      inner /= softmax.sum;
      for (int d = lane; d < in.size; d += kWarp) {
        const A within = (by_gradient[d] - inner * by_weight[d]) / softmax.sum;
        by_gradient[d] = share * (within + (inner - delta) * number<A>(landmark[d]));
      }
    }
    __syncwarp();
    rotate_vector(rotated, by_gradient, angles, in.pairs, in.size, true, in.interleaved);
    for (int d = lane; d < in.size; d += kWarp) total[d] += rotated[d];
    __syncwarp();
  }
  for (int d = lane; d < in.size; d += kWarp) dq[line * in.size + d] = narrow<T>(total[d] * in.scale);
}

// Returns the number of warps of a block: as many as fit into shared memory, at most 8.
template <typename A>
int warps_for(int64_t numbers) {
  constexpr int64_t kRoom = int64_t{48} << 10;
  const int64_t max_warps = kRoom / (numbers * static_cast<int64_t>(sizeof(A)));
  return static_cast<int>(max_warps < 1 ? 1 : max_warps < 8 ? max_warps : 8);
}

// Calls function(T{}, S{}) with the types of queries and of stored blocks.
template <typename Function>
void dispatch_stored(const ops::StoredAttentionInputs& in, Function&& function) {
  dispatch(in.q.dtype(), [&](auto type) {
    if (in.keys.dtype() == in.q.dtype()) return function(type, type);
    if constexpr (!std::is_same_v<decltype(type), bfloat16>) function(type, bfloat16{});
  });
}

// Calls launch_with(blocks, threads, bytes of shared memory, numbers). Each warp gets `numbers` numbers of shared
// memory.
template <typename A, typename Launch>
void launch_warps(int64_t lines, int64_t numbers, Launch&& launch_with) {
  const int warps = warps_for<A>(numbers);
  launch_with(dim3(static_cast<unsigned>(ceil_div(lines, warps))), warps * kWarp,
              static_cast<size_t>(warps * numbers) * sizeof(A), static_cast<int>(numbers));
}

void stored_attention(const Tensor& out, const Tensor& lse, const ops::StoredAttentionInputs& in) {
  const StoredSizes s(in);
  check_stored_attention(s, out, lse, in);
  if (suits_tensor_cores(out, in, s)) return stored_on_tensor_cores(out, lse, in, s);
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
  if (suits_tensor_cores(dout, in, s)) return stored_backward_on_tensor_cores(dq, dout, dlse, out, lse, in, s);
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
