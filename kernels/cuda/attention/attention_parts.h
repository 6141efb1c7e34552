// Sums of attention's backward pass over all rows, computed in parts.
#pragma once

#include "kernels/cuda/attention/attention_tiles.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

// Computes to = factor * the sum of parts, in order.
template <typename To>
__global__ void add_parts_kernel(To* to, const Wide<To>* parts, int count_of_parts, int64_t count, Wide<To> factor) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    Wide<To> sum = 0;
    for (int part = 0; part < count_of_parts; ++part) sum += parts[part * count + i];
    to[i] = narrow<To>(factor * sum);
  }
}

template <typename To>
void add_parts(const Tensor& to, const Tensor& parts, double factor) {
  launch(add_parts_kernel<To>, blocks_for(to.numel()), kBlock, 0, to.data<To>(), parts.data<Wide<To>>(), parts.dim(0),
         to.numel(), factor);
}

// du and dv_bias are sums of keys and of lines of r, each times the sum of the gradients of its logits.

// Computes parts[part][head] = sum over a share of the lines of sums[line] * line. Eight lanes share a line and take a
// pack of features each.
template <bool kKeys, typename T, int kPack>
__global__ void __launch_bounds__(kBlock)
    weighted_lines_kernel(Wide<T>* parts, const Wide<T>* sums, int64_t lines, AttentionOperands<T> in, bool aligned) {
  using A = Wide<T>;
  constexpr int kLanes = 8;
  constexpr int kAtOnce = kBlock / kLanes;
  constexpr int kFeatures = kLanes * kPack;
  __shared__ Pack<A, kPack> partial[kAtOnce][kLanes];
  const int head = static_cast<int>(blockIdx.y);
  const int keys = in.slots + in.queries;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kLinesOfPart;
  const int64_t end = begin + kLinesOfPart < lines ? begin + kLinesOfPart : lines;
  const int first = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int features = 0; features < in.size; features += kFeatures) {
    const int f = features + lane * kPack;
    Pack<A, kPack> total{};
    for (int64_t n = begin + first; n < end && f < in.size; n += kAtOnce) {
      const Place at = place_of(in, kKeys ? static_cast<int>(n / keys) : 0, head);
      const int position = static_cast<int>(n % keys) - in.slots;
      const A sum = kKeys ? sums[(static_cast<int64_t>(at.row) * in.heads + head) * keys + n % keys]
                          : sums[static_cast<int64_t>(head) * in.entries + n];
      // A line that nobody sees may hold any value, NaN too.
      if (sum == 0) continue;
      const T* const line =
          kKeys ? line_of_key(in.k, in.cache_k, in.size, in, at, position) : in.r + (n * in.heads + head) * in.size;
      const Pack<T, kPack> pack = load<kPack>(line + f, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) total.value[k] += sum * wide(pack.value[k]);
    }
    partial[first][lane] = total;
    __syncthreads();
    const int c = static_cast<int>(threadIdx.x);
    if (c < kFeatures && features + c < in.size) {
      A of_all = 0;
      for (int other = 0; other < kAtOnce; ++other) of_all += partial[other][c / kPack].value[c % kPack];
      parts[(static_cast<int64_t>(blockIdx.x) * in.heads + head) * in.size + features + c] = of_all;
    }
    __syncthreads();
  }
}

template <bool kKeys, typename T>
void add_weighted_lines(const Tensor& to, const Tensor& sums, const Tensor& parts, int64_t lines,
                        const AttentionOperands<T>& operands, double scale) {
  using A = Wide<T>;
  const dim3 blocks(static_cast<unsigned>(parts.dim(0)), static_cast<unsigned>(operands.heads));
  const bool aligned = kKeys ? are_aligned({operands.k, operands.cache_k}) : are_aligned({operands.r});
  with_pack<T>(operands.size, [&](auto pack) {
    launch(weighted_lines_kernel<kKeys, T, decltype(pack)::value>, blocks, kBlock, 0, parts.data<A>(), sums.data<A>(),
           lines, operands, aligned);
  });
  add_parts<A>(to, parts, scale);
}

}  // namespace quire::cuda
