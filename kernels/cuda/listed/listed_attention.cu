// Listed attention by query: a warp takes a query and a head, reads the blocks one after the other where they lie, 32
// keys at a time, and keeps the query, rotated for the block, and the sums over keys in shared memory. In bf16 most
// calls go to tensor cores instead (listed_mma.h).
#include "kernels/cuda/listed/listed_keys.h"
#include "kernels/cuda/listed/listed_query.h"

namespace quire::cuda {

namespace {

template <typename T, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    attend_by_query_kernel(T* out, Wide<T>* lse, Wide<T>* mass, ListedOperands<T, S> in, int numbers) {
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
    A* const own_mass = in.is_weighted() ? lse : mass;
    if (own_mass != nullptr && lane == 0)
      own_mass[in.lse_of(line) * in.chosen + n] = in.is_weighted() ? A{0} : kNothing;
    if (block < 0) continue;
    rotate_vector(rotated, q, in.angles_of(line, n), in.pairs, in.size, false, in.interleaved);
    for (int f = lane; f < in.value_size; f += kWarp) of_block[f] = 0;
    OnlineSoftmax<A> softmax{in.first_top()};
    A gate = 0;
    in.with_block(block, in.kv_head_of(line), [&](const auto& lines) {
      for (int begin = 0; begin < lines.regular; begin += kWarp) {
        const int count = lines.regular - begin < kWarp ? lines.regular - begin : kWarp;
        A weight = dots<A>(rotated, lines.key(begin), count, lines.key_stride, in.size);
        if (lane >= count) weight = kNothing;
        const A correction = softmax.take(weight);
        weights[lane] = weight;
        __syncwarp();
        for (int f = lane; f < in.value_size; f += kWarp) {
          A more = 0;
          for (int j = 0; j < count; ++j) more += weights[j] * number<A>(lines.value(begin + j)[f]);
          of_block[f] = of_block[f] * correction + more;
        }
        __syncwarp();
      }
      if (in.landmarks) gate = dot<A>(rotated, lines.key(lines.regular), in.size);
    });
    if (in.softmax_one) softmax.sum += std::exp(-softmax.top);
    const A whole = softmax.top + std::log(softmax.sum);
    if (in.is_weighted() && lane == 0) lse[in.lse_of(line) * in.chosen + n] = whole;
    if (softmax.sum == 0) continue;  // all logits are -inf
    if (in.is_weighted()) {
      const A factor = in.weight[in.weight_of(line, n)] / softmax.sum;
      for (int f = lane; f < in.value_size; f += kWarp) total[f] += of_block[f] * factor;
      __syncwarp();
      continue;
    }
    if (!in.landmarks) gate = softmax.top;
    if (mass != nullptr && lane == 0) mass[in.lse_of(line) * in.chosen + n] = in.landmarks ? gate : whole;
    const A largest = gate > top || gate != gate ? gate : top;
    const A correction = std::exp(top - largest);
    const A share = std::exp(gate - largest);
    sum = sum * correction + (in.landmarks ? share : share * softmax.sum);
    const A factor = in.landmarks ? share / softmax.sum : share;
    for (int f = lane; f < in.value_size; f += kWarp) total[f] = total[f] * correction + of_block[f] * factor;
    top = largest;
    __syncwarp();
  }
  if (in.is_weighted()) sum = 1;
  const bool empty = sum == 0;
  for (int f = lane; f < in.value_size; f += kWarp) {
    out[line * in.value_size + f] = narrow<T>(empty ? A{0} : total[f] / sum);
  }
  if (lane == 0 && !in.is_weighted()) lse[in.lse_of(line)] = empty ? kNothing : top + std::log(sum);
}

// With the share a of a landmark and P the softmax within its block, the logit of a key has the gradient a P (dw - sum
// of P dw), and that of the landmark a (sum of P dw - delta); a given weight takes the place of a, and its own gradient
// is the sum of P dw. Since the sum of P dw is known only after all keys have
// been read, two sums of keys are computed: one weighted by P dw and one by P. In a softmax over all keys one sum is,
// weighted by p (dw - delta).
template <typename T, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    gradients_by_query_kernel(T* dq, Wide<T>* inners, const T* dout, const Wide<T>* dlse, const T* out,
                              const Wide<T>* lse, ListedOperands<T, S> in, int numbers) {
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
  const A log_sum = in.is_weighted() ? A{0} : lse[in.lse_of(line)];
  A delta = in.is_weighted() ? A{0} : dot<A>(dy, out + line * in.value_size, in.value_size);
  if (dlse != nullptr) delta -= dlse[in.lse_of(line)];
  load_query(q, in, line);
  for (int d = lane; d < in.size; d += kWarp) total[d] = 0;
  __syncwarp();
  for (int n = 0; n < in.chosen && log_sum != kNothing; ++n) {
    const int64_t block = in.block_of(line, n);
    if (block < 0) continue;
    const A* const angles = in.angles_of(line, n);
    rotate_vector(rotated, q, angles, in.pairs, in.size, false, in.interleaved);
    for (int d = lane; d < in.size; d += kWarp) by_gradient[d] = by_weight[d] = 0;
    OnlineSoftmax<A> softmax{in.first_top()};
    A inner = 0;
    in.with_block(block, in.kv_head_of(line), [&](const auto& lines) {
      for (int begin = 0; begin < lines.regular; begin += kWarp) {
        const int count = lines.regular - begin < kWarp ? lines.regular - begin : kWarp;
        A weight = dots<A>(rotated, lines.key(begin), count, lines.key_stride, in.size);
        if (lane >= count) weight = kNothing;
        const A dw = dots<A>(dy, lines.value(begin), count, lines.value_stride, in.value_size);
        A correction = 1;
        if (in.is_by_block()) {
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
            const A key = number<A>(lines.key(begin + j)[d]);
            by_dw += gradients[j] * key;
            if (in.is_by_block()) by_p += weights[j] * key;
          }
          by_gradient[d] = by_gradient[d] * correction + by_dw;
          by_weight[d] = by_weight[d] * correction + by_p;
        }
        __syncwarp();
      }
      if (in.is_by_block()) {
        if (in.softmax_one) softmax.sum += std::exp(-softmax.top);
        if (softmax.sum != 0) inner /= softmax.sum;
        if (inners != nullptr && lane == 0) inners[in.lse_of(line) * in.chosen + n] = inner;
        if (softmax.sum == 0) return;
        const auto* const landmark = lines.key(lines.regular);
        const A share =
            in.landmarks ? std::exp(dot<A>(rotated, landmark, in.size) - log_sum) : in.weight[in.weight_of(line, n)];
        for (int d = lane; d < in.size; d += kWarp) {
          const A within = (by_gradient[d] - inner * by_weight[d]) / softmax.sum;
          by_gradient[d] = share * (in.landmarks ? within + (inner - delta) * number<A>(landmark[d]) : within);
        }
      }
      __syncwarp();
      rotate_vector(rotated, by_gradient, angles, in.pairs, in.size, true, in.interleaved);
      for (int d = lane; d < in.size; d += kWarp) total[d] += rotated[d];
      __syncwarp();
    });
  }
  if (dq == nullptr) return;
  for (int d = lane; d < in.size; d += kWarp) dq[line * in.size + d] = narrow<T>(total[d] * in.scale);
}

void listed_attention(const Tensor& out, const Tensor& lse, const Tensor& mass, const ops::ListedAttentionInputs& in) {
  const ListedSizes s(in);
  refuse_scaled_blocks(in);
  check_listed_attention(s, out, lse, mass, in);
  if (suits_tensor_cores(out, in, s)) return attend_on_tensor_cores(out, lse, mass, in, s);
  dispatch_stored(in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    using A = Wide<T>;
    const ListedOperands<T, S> operands(in, s);
    launch_warps<A>(operands.lines, 2 * s.size + 2 * s.value_size + kWarp,
                    [&](dim3 blocks, int threads, size_t bytes, int numbers) {
                      launch(attend_by_query_kernel<T, S>, blocks, threads, bytes, out.data<T>(), lse.data<A>(),
                             writable_or_null<A>(mass), operands, numbers);
                    });
  });
}

void listed_attention_backward(const ops::ListedAttentionGradients& g, const Tensor& dout, const Tensor& dlse,
                               const Tensor& out, const Tensor& lse, const ops::ListedAttentionInputs& in) {
  const ListedSizes s(in);
  refuse_scaled_blocks(in);
  check_listed_attention_backward(s, g, dout, dlse, out, lse, in);
  const ListBackwardScratch scratch(s, g, in);
  if (gradients_suit_tensor_cores(g, dout, in, s)) {
    query_gradient_on_tensor_cores(g.dq, scratch.inner, dout, dlse, out, lse, in, s);
  } else {
    dispatch_stored(in, [&](auto type, auto stored) {
      using T = decltype(type);
      using S = decltype(stored);
      using A = Wide<T>;
      const ListedOperands<T, S> operands(in, s);
      launch_warps<A>(operands.lines, 5 * s.size + 2 * kWarp, [&](dim3 blocks, int threads, size_t bytes, int numbers) {
        launch(gradients_by_query_kernel<T, S>, blocks, threads, bytes, writable_or_null<T>(g.dq),
               writable_or_null<A>(scratch.inner), dout.data<T>(), data_or_null<A>(dlse), data_or_null<T>(out),
               lse.data<A>(), operands, numbers);
      });
    });
  }
  sums_over_queries(g, scratch, dout, dlse, out, lse, in, s);
}

}  // namespace

void bind_listed_attention() {
  ops::listed_attention.bind(DeviceKind::cuda, listed_attention);
  ops::listed_attention_backward.bind(DeviceKind::cuda, listed_attention_backward);
}

}  // namespace quire::cuda
