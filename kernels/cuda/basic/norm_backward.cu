#include "kernels/norm.h"

#include "kernels/checks.h"
#include "kernels/cuda/basic/columns.h"
#include "kernels/cuda/basic/norm_team.h"

namespace quire::cuda {

namespace {

// Describes where a team's sums of a kind lie in shared memory: those of the k-th columns of all packs side by side.
// Neighbouring lanes use different banks, whether each has a pack or a column.
template <int kPack>
struct SumsInShared {
  int64_t of_lane;  // distance from the sums of a pack's column to those of the next one

  __host__ __device__ explicit SumsInShared(int64_t width)
      : of_lane(kPack == 1 ? width : (width / kPack + kWarp - 1) / kWarp * kWarp + kWarp / kPack) {}
  __host__ __device__ int64_t size() const { return kPack * of_lane; }
  __device__ int64_t at(int64_t column) const { return column % kPack * of_lane + column / kPack; }
};

// Computes dx, and adds the gradients of weight and bias over the block's rows into partial [blocks, 1 or 2, width]. A
// team adds into sums of its own, and each lane owns the columns that it reads, so that no barrier is needed until the
// end.
template <typename T, int kPack, bool kWhole, bool kLayer, bool kInShared>
__global__ void norm_backward_kernel(T* dx, Wide<T>* partial, const T* dy, const T* x, const Wide<T>* weight,
                                     const Wide<T>* mean, const Wide<T>* rstd, int64_t rows, int64_t width,
                                     bool accumulate, bool aligned) {
  using W = Wide<T>;
  constexpr int kKinds = kLayer ? 2 : 1;
  __shared__ W of_warps[kBlock / kWarp];
  const Team<kWhole> team;
  W* const of_block = partial + blockIdx.x * kKinds * width;
  const SumsInShared<kPack> sums(width);
  const int64_t of_kind = kInShared ? sums.size() : width;
  // The choice is made when it is compiled: a pointer into either kind of memory needs slower instructions.
  W* of_teams = of_block;
  if constexpr (kInShared) of_teams = dynamic_shared<W>();
  W* const dweight = of_teams + team.index * kKinds * of_kind;
  W* const dbias = dweight + of_kind;
  const auto slot = [&](int64_t n, int k) { return kInShared ? k * sums.of_lane + n / kPack : n + k; };
  for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      dweight[slot(n, k)] = 0;
      if constexpr (kLayer) dbias[slot(n, k)] = 0;
    }
  }
  const int64_t end = rows * (blockIdx.x + 1) / gridDim.x;
  for (int64_t row = rows * blockIdx.x / gridDim.x + team.index; row < end; row += team.count) {
    const T* const in = x + row * width;
    const T* const grad = dy + row * width;
    const W mu = kLayer ? mean[row] : W{0};
    const W r = rstd[row];
    W sum = 0;    // sum of g = w dy
    W along = 0;  // sum of g (x - mu)
    for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
      const Pack<T, kPack> a = load<kPack>(in + n, aligned);
      const Pack<T, kPack> b = load<kPack>(grad + n, aligned);
      const Pack<W, kPack> w = load<kPack>(weight + n, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const W centred = wide(a.value[k]) - mu;
        const W given = wide(b.value[k]);
        dweight[slot(n, k)] += given * centred * r;
        if constexpr (kLayer) {
          dbias[slot(n, k)] += given;
          sum += given * w.value[k];
        }
        along += given * w.value[k] * centred;
      }
    }
    // dx = r (g - mean(g) - x_hat mean(g x_hat))
    W average = 0;
    if constexpr (kLayer) average = team.sum(sum, of_warps) / static_cast<W>(width);
    const W dot = team.sum(along, of_warps) * r * r / static_cast<W>(width);
    for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
      const Pack<T, kPack> a = load<kPack>(in + n, aligned);
      const Pack<T, kPack> b = load<kPack>(grad + n, aligned);
      const Pack<W, kPack> w = load<kPack>(weight + n, aligned);
      T* const to = dx + row * width + n;
      Pack<T, kPack> out{};
      if (accumulate) out = load<kPack>(to, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const W value = r * (wide(b.value[k]) * w.value[k] - average - (wide(a.value[k]) - mu) * dot);
        out.value[k] = narrow<T>(accumulate ? wide(out.value[k]) + value : value);
      }
      store<kPack>(to, out, aligned);
    }
  }
  if (!kInShared) return;  // all threads return; there is one team
  __syncthreads();
  for (int64_t n = threadIdx.x; n < kKinds * width; n += blockDim.x) {
    W total = 0;
    const int64_t from = n / width * of_kind + sums.at(n % width);
    for (int t = 0; t < team.count; ++t) total += of_teams[t * kKinds * of_kind + from];
    of_block[n] = total;
  }
}

template <bool kLayer>
void run_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy, const Tensor& x,
                       const Tensor& weight, const Tensor& mean, const Tensor& rstd, bool accumulate) {
  constexpr int kKinds = kLayer ? 2 : 1;
  constexpr size_t kMaxShared = size_t{96} << 10;
  constexpr int64_t kRowsOfBlock = 16;
  constexpr int64_t kMaxBlocks = 1024;
  const int64_t rows = rstd.numel();
  const int64_t width = x.dim(-1);
  if (rows == 0) return;
  const int64_t needed_blocks = ceil_div(rows, kRowsOfBlock);
  const int64_t blocks = needed_blocks < kMaxBlocks ? needed_blocks : kMaxBlocks;
  const bool aligned = are_aligned({dx.raw(), dy.raw(), x.raw(), weight.raw()});
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    const Tensor partial = Tensor::empty({blocks, kKinds, width}, dtype_of<W>(), x.device());
    with_team<T>(width, [&](auto pack, auto whole) {
      constexpr int kPack = decltype(pack)::value;
      constexpr bool kWhole = decltype(whole)::value;
      constexpr int kThreads = kWhole ? kBlock : 4 * kWarp;
      const size_t shared =
          static_cast<size_t>(SumsInShared<kPack>(width).size()) * sizeof(W) * kKinds * (kWhole ? 1 : kThreads / kWarp);
      const auto start = [&](auto in_shared) {
        constexpr bool kInShared = decltype(in_shared)::value;
        launch(norm_backward_kernel<T, kPack, kWhole, kLayer, kInShared>, dim3(static_cast<unsigned>(blocks)), kThreads,
               kInShared ? shared : 0, dx.data<T>(), partial.data<W>(), dy.data<T>(), x.data<T>(), weight.data<W>(),
               kLayer ? mean.data<W>() : nullptr, rstd.data<W>(), rows, width, accumulate, aligned);
      };
      if constexpr (kWhole) {
        if (shared > kMaxShared) return start(std::false_type{});
      }
      start(std::true_type{});
    });
    const W* const sums = partial.data<W>();
    sum_columns(x.device(), dweight.data<W>(), sums, blocks, width, kKinds * width, true);
    if constexpr (kLayer) sum_columns(x.device(), dbias.data<W>(), sums + width, blocks, width, kKinds * width, true);
  });
}

void rms_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, bool accumulate_dx) {
  check_norm_backward("rms_norm_backward", dx, dweight, dy, x, weight, rstd);
  run_norm_backward<false>(dx, dweight, Tensor(), dy, x, weight, Tensor(), rstd, accumulate_dx);
}

void layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                         const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         bool accumulate_dx) {
  check_norm_backward("layer_norm_backward", dx, dweight, dy, x, weight, rstd);
  check_norm_backward("layer_norm_backward", dx, dbias, dy, x, weight, mean);
  run_norm_backward<true>(dx, dweight, dbias, dy, x, weight, mean, rstd, accumulate_dx);
}

}  // namespace

void bind_norm_backward() {
  ops::layer_norm_backward.bind(DeviceKind::cuda, layer_norm_backward);
  ops::rms_norm_backward.bind(DeviceKind::cuda, rms_norm_backward);
}

}  // namespace quire::cuda
