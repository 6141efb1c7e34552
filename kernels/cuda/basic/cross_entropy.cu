#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/checks.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

// Computes the sum of exp(x - top) in one pass: the sum so far is rescaled when a larger value comes.
template <typename W>
struct SumOfExponentials {
  // It is finite, because -inf - -inf is NaN.
  W top = std::numeric_limits<W>::lowest();
  W sum = 0;

  // Raises top, which never falls, to `to`. NaN stays.
  __device__ void raise(W to) {
    sum *= std::exp(top - to);
    top = to;
  }
  template <int kCount>
  __device__ void add(const W (&x)[kCount]) {
    W max_value = top;
#pragma unroll
    for (int k = 0; k < kCount; ++k) max_value = x[k] > max_value || x[k] != x[k] ? x[k] : max_value;
    if (max_value != top) raise(max_value);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum += std::exp(x[k] - max_value);
  }
};

// Loads a pack of which only `left` values belong to the row; the others do not count.
template <int kPack, typename T>
__device__ inline Pack<T, kPack> load_part(const T* from, int64_t left, bool aligned) {
  if (left >= kPack) return load<kPack>(from, aligned);
  Pack<T, kPack> pack;
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    pack.value[k] = k < left ? from[k] : narrow<T>(-std::numeric_limits<Wide<T>>::infinity());
  }
  return pack;
}

// Describes the threads that share a row. A short row has one thread per pack. A long row has so many that few rows are
// processed at once, because the gradient reads a second time what the sum has read: from shared memory where the row
// fits, otherwise from the L2 cache, which does not hold all these rows (132 times 2 rows of 50257 logits in f32 are 53
// MB, and an H100 has 50).
template <int kTeam>
struct RowTeam {
  static constexpr int kThreads = kTeam < kBlock ? kBlock : kTeam;
  static constexpr int kRows = kThreads / kTeam;  // rows of a block

  template <typename W>
  __device__ static void join(SumOfExponentials<W>& total, W* of_warps) {
    W top = warp_max(total.top);
    if constexpr (kTeam > kWarp) {
      if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = top;
      __syncthreads();
      top = of_warps[0];
      for (int w = 1; w < kTeam / kWarp; ++w) top = of_warps[w] > top || of_warps[w] != of_warps[w] ? of_warps[w] : top;
      __syncthreads();
    }
    total.raise(top);
    total.sum = sum(total.sum, of_warps);
  }
  template <typename W>
  __device__ static W sum(W value, W* of_warps) {
    if constexpr (kTeam > kWarp) {
      return block_sum(value, of_warps);
    } else {
      return warp_sum(value);
    }
  }
};

template <typename To, typename From>
struct CrossEntropyOperands {
  Wide<From>* nll;
  To* dlogits;  // or null
  const From* logits;
  const int32_t* targets;
  const uint8_t* mask;
  const double* factor;
  Wide<From>* log_sums;  // or null
  Wide<From>* uniform;   // or null
  Wide<From> smoothing, log_sum_weight;
  int64_t rows, width, stride, dstride;
  bool aligned;
};

// With kCopied, a row is first copied to dynamic shared memory, all of it at once, and read there.
template <typename To, typename From, int kPack, int kTeam, bool kCopied>
__global__ void __launch_bounds__(RowTeam<kTeam>::kThreads) cross_entropy_kernel(CrossEntropyOperands<To, From> in) {
  using W = Wide<From>;
  __shared__ W of_warps[RowTeam<kTeam>::kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kTeam;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * RowTeam<kTeam>::kRows + threadIdx.x / kTeam;
  if (row >= in.rows) return;  // the whole team returns; where there are barriers it is the block
  const From* x = in.logits + row * in.stride;
  const int64_t target = in.targets[row];
  const bool counted = in.mask[row] != 0;
  const bool known = target >= 0 && target < in.width;
  const W of_target = known ? wide(x[target]) : std::numeric_limits<W>::quiet_NaN();  // before gradients take its place
  if constexpr (kCopied) {
    From* const copied = dynamic_shared<From>();
    for (int64_t v = lane * kPack; v < in.width; v += kTeam * kPack) {
      if (v + kPack <= in.width) {
        copy_later(copied + v, x + v, true);
      } else {
        store<kPack>(copied + v, load_part<kPack>(x + v, in.width - v, true), true);
      }
    }
    await_copies();  // a thread reads what it has copied itself
    x = copied;
  }
  SumOfExponentials<W> total;
  W plain = 0;  // sum of the logits, for `uniform`
  for (int64_t v = lane * kPack; v < in.width; v += kTeam * kPack) {
    const Pack<From, kPack> pack = load_part<kPack>(x + v, in.width - v, in.aligned);
    W values[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) values[k] = wide(pack.value[k]);
    total.add(values);
    if (in.uniform == nullptr) continue;
#pragma unroll
    for (int k = 0; k < kPack; ++k) plain += v + k < in.width ? values[k] : W{0};
  }
  RowTeam<kTeam>::join(total, of_warps);
  const W log_sum = total.top + std::log(total.sum);
  if (in.uniform != nullptr) {
    const W sum = RowTeam<kTeam>::sum(plain, of_warps);
    if (lane == 0) in.uniform[row] = counted ? log_sum - sum / static_cast<W>(in.width) : W{0};
  }
  if (lane == 0) in.nll[row] = counted ? log_sum - of_target : W{0};
  if (lane == 0 && in.log_sums != nullptr) in.log_sums[row] = counted ? log_sum : W{0};
  if (in.dlogits == nullptr) return;
  __syncwarp();  // what another lane's gradient overwrites has been read

  const W weight = counted ? static_cast<W>(*in.factor) : W{0};
  const W of_sum = weight * (1 + 2 * in.log_sum_weight * log_sum);
  const W of_hit = weight * (1 - in.smoothing);  // at the target
  const W of_all = weight * (in.smoothing / static_cast<W>(in.width));
  To* const dx = in.dlogits + row * in.dstride;
  for (int64_t v = lane * kPack; v < in.width; v += kTeam * kPack) {
    // A row that does not count has gradient 0 even where its logits are NaN or inf.
    Pack<To, kPack> to{};
    if (counted) {
      const Pack<From, kPack> from = load_part<kPack>(x + v, in.width - v, in.aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        W value = of_sum * std::exp(wide(from.value[k]) - log_sum) - of_all;
        if (v + k == target) value -= of_hit;
        to.value[k] = static_cast<To>(value);
      }
    }
    if (v + kPack <= in.width) {
      store<kPack>(dx + v, to, in.aligned);
      continue;
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) {  // unrolled: the pack stays in registers
      if (v + k < in.width) dx[v + k] = to.value[k];
    }
  }
}

template <typename To, typename From>
void run(const Tensor& nll, const Tensor& dlogits, const Tensor& logits, const Tensor& targets, const Tensor& mask,
         const Tensor& factor, const ops::CrossEntropyTerms& terms) {
  const bool has_gradient = dlogits.defined();
  const CrossEntropyOperands<To, From> operands{
      nll.data<Wide<From>>(),
      has_gradient ? dlogits.data<To>() : nullptr,
      logits.data<From>(),
      targets.data<int32_t>(),
      mask.data<uint8_t>(),
      has_gradient ? factor.data<double>() : nullptr,
      terms.log_sum.defined() ? terms.log_sum.data<Wide<From>>() : nullptr,
      terms.uniform.defined() ? terms.uniform.data<Wide<From>>() : nullptr,
      static_cast<Wide<From>>(terms.smoothing),
      static_cast<Wide<From>>(terms.log_sum_weight),
      logits.dim(0),
      logits.dim(1),
      logits.stride(0),
      has_gradient ? dlogits.stride(0) : 0,
      are_aligned({logits.raw()}) && (!has_gradient || are_aligned({dlogits.raw()})),
  };
  // Logits and gradients have the same pack size.
  const bool of_gradients = has_gradient && logits.stride(0) % kPackOf<From> == 0;
  with_pack<From>(of_gradients ? dlogits.stride(0) : logits.stride(0), [&](auto pack) {
    constexpr int kPack = decltype(pack)::value;
    const auto start = [&](auto team) {
      constexpr int kTeam = decltype(team)::value;
      const auto blocks = static_cast<unsigned>(ceil_div(operands.rows, RowTeam<kTeam>::kRows));
      launch(cross_entropy_kernel<To, From, kPack, kTeam, false>, dim3(blocks), RowTeam<kTeam>::kThreads, 0, operands);
    };
    constexpr int kMany = 1024;
    if constexpr (kPack > 1) {
      const size_t bytes = static_cast<size_t>(ceil_div(operands.width, kPack)) * kVectorBytes;
      constexpr size_t kOfKernel = size_t{1} << 10;  // shared memory that the kernel has besides
      if (has_gradient && operands.aligned && operands.width > 8 * kMany && has_shared_memory(bytes + kOfKernel)) {
        launch(cross_entropy_kernel<To, From, kPack, kMany, true>, dim3(static_cast<unsigned>(operands.rows)), kMany,
               bytes, operands);
        return;
      }
    }
    if (operands.width <= kMany) return start(std::integral_constant<int, kWarp>{});
    if (operands.width <= 8 * kMany) return start(std::integral_constant<int, kBlock>{});
    start(std::integral_constant<int, kMany>{});
  });
}

void cross_entropy(const Tensor& nll, const Tensor& dlogits, const Tensor& logits, const Tensor& targets,
                   const Tensor& mask, const Tensor& factor, const ops::CrossEntropyTerms& terms) {
  check_cross_entropy(nll, dlogits, logits, targets, mask, factor, terms);
  if (dlogits.defined() && logits.dtype() == DType::f32 && dlogits.dtype() == DType::bf16) {
    run<bfloat16, float>(nll, dlogits, logits, targets, mask, factor, terms);
    return;
  }
  dispatch(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    run<T, T>(nll, dlogits, logits, targets, mask, factor, terms);
  });
}

}  // namespace

void bind_cross_entropy() {
  ops::cross_entropy.bind(DeviceKind::cuda, cross_entropy);
}

}  // namespace quire::cuda
