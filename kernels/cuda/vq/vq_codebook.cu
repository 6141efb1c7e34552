// Moving averages of a codebook, and its codewords, which are computed from them. A block takes one codeword.
#include "kernels/cuda/runtime.h"
#include "kernels/vq_sizes.h"

namespace quire::cuda {

namespace {

template <typename A>
struct UpdateOperands {
  A *m, *n;
  const A *sums, *counts, *seeds, *present;
  const double* control;
  int64_t size;
  A kept, added, reseed;
  bool reseed_all;
};

template <typename A>
__global__ void codebook_update_kernel(UpdateOperands<A> in) {
  const int64_t s = blockIdx.x;
  const bool applies = in.control[1] != 0;
  A count = in.kept * in.n[s] + in.added * in.counts[s];
  const bool seeded = (in.reseed_all || count < in.reseed) && in.present != nullptr && in.present[s] != A{0};
  if (seeded) count = 1;
  __syncthreads();
  if (applies && threadIdx.x == 0) in.n[s] = count;
  for (int64_t d = threadIdx.x; applies && d < in.size; d += blockDim.x) {
    const int64_t i = s * in.size + d;
    in.m[i] = seeded ? in.seeds[i] : in.kept * in.m[i] + in.added * in.sums[i];
  }
}

void codebook_update(const Tensor& m, const Tensor& n, const Tensor& sums, const Tensor& counts, const Tensor& seeds,
                     const Tensor& present, const Tensor& control, const ops::CodebookUpdate& options) {
  check_codebook_update(m, n, sums, counts, seeds, present, control, options);
  dispatch_wide(m.dtype(), [&](auto type) {
    using A = decltype(type);
    const bool seeds_given = seeds.defined() && present.defined();
    const UpdateOperands<A> in{m.data<A>(),
                               n.data<A>(),
                               sums.data<A>(),
                               counts.data<A>(),
                               seeds_given ? seeds.data<A>() : nullptr,
                               seeds_given ? present.data<A>() : nullptr,
                               control.data<double>(),
                               m.dim(2),
                               static_cast<A>(options.decay),
                               static_cast<A>(1 - options.decay),
                               static_cast<A>(options.reseed),
                               options.reseed_all};
    launch(codebook_update_kernel<A>, dim3(static_cast<unsigned>(n.numel())), 4 * kWarp, 0, in);
  });
}

template <typename A>
__global__ void codewords_kernel(A* codebook, const A* m, const A* n, int64_t codes, int64_t size, double floor,
                                 double smoothing) {
  __shared__ double partial[kBlock / kWarp];
  const int64_t s = blockIdx.x;
  double total = 0;
  for (int64_t c = threadIdx.x; c < codes; c += blockDim.x) total += n[s / codes * codes + c];
  total = block_sum(total, partial);
  double used = n[s];
  if (smoothing > 0) used = (used + smoothing) / (total + static_cast<double>(codes) * smoothing) * total;
  const A divisor = static_cast<A>(used > floor ? used : floor);
  for (int64_t d = threadIdx.x; d < size; d += blockDim.x) codebook[s * size + d] = m[s * size + d] / divisor;
}

void codewords(const Tensor& codebook, const Tensor& m, const Tensor& n, double floor, double smoothing) {
  check_codewords(codebook, m, n);
  dispatch_wide(m.dtype(), [&](auto type) {
    using A = decltype(type);
    launch(codewords_kernel<A>, dim3(static_cast<unsigned>(n.numel())), 4 * kWarp, 0, codebook.data<A>(), m.data<A>(),
           n.data<A>(), m.dim(1), m.dim(2), floor, smoothing);
  });
}

}  // namespace

void bind_vq_codebook() {
  ops::codebook_update.bind(DeviceKind::cuda, codebook_update);
  ops::codewords.bind(DeviceKind::cuda, codewords);
}

}  // namespace quire::cuda
