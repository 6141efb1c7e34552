// Sums over rows, one per column, as for gradients of gains and biases and column means of Adafactor. Their order is
// fixed by the shape.
#pragma once

#include "kernels/cuda/pack.h"

namespace quire::cuda {

inline constexpr int kRowGroups = kBlock / kWarp;

struct Itself {
  template <typename To, typename From>
  __device__ To term(From x) const {
    return static_cast<To>(wide(x));
  }
};

// out [parts, width] (+)= sums of term(in) over the part's rows; a row begins every `stride` values. A block takes 32
// packs of columns, a warp every eighth row of the part.
template <typename To, typename From, int kPack, typename Term>
__global__ void column_sums_kernel(To* out, const From* in, int64_t rows, int64_t width, int64_t stride, Term term,
                                   bool accumulate, bool aligned) {
  __shared__ Pack<To, kPack> sums[kRowGroups][kWarp];
  const int group = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * kPack;
  const int64_t part = blockIdx.y;
  const int64_t end = rows * (part + 1) / gridDim.y;
  Pack<To, kPack> sum{};
  if (column < width) {
#pragma unroll 4
    for (int64_t m = rows * part / gridDim.y + group; m < end; m += kRowGroups) {
      const Pack<From, kPack> pack = load<kPack>(in + m * stride + column, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum.value[k] += term.template term<To>(pack.value[k]);
    }
  }
  sums[group][lane] = sum;
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kWarp * kPack; c += kBlock) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarp * kPack + c;
    if (at >= width) continue;
    To total = accumulate ? out[part * width + at] : To{0};
    for (int g = 0; g < kRowGroups; ++g) total += sums[g][c / kPack].value[c % kPack];
    out[part * width + at] = total;
  }
}

template <typename To, typename From, typename Term>
void launch_column_sums(To* out, const From* in, int64_t rows, int64_t width, int64_t stride, int64_t parts, Term term,
                        bool accumulate) {
  // A row that begins at any other address would not be a whole number of vectors away from the first.
  const bool aligned = are_aligned({in}) && stride % kPackOf<From> == 0;
  with_pack<From>(width, [&](auto pack) {
    constexpr int kPack = decltype(pack)::value;
    const dim3 blocks(static_cast<unsigned>(ceil_div(width, kWarp * kPack)), static_cast<unsigned>(parts));
    launch(column_sums_kernel<To, From, kPack, Term>, blocks, kBlock, 0, out, in, rows, width, stride, term, accumulate,
           aligned);
  });
}

// out [width] (+)= sums of term(in) over `rows` rows.
template <typename To, typename From, typename Term = Itself>
void sum_columns(Device device, To* out, const From* in, int64_t rows, int64_t width, int64_t stride, bool accumulate,
                 Term term = {}) {
  constexpr int64_t kRowsOfPart = 8 * kRowGroups;
  constexpr int64_t kMaxParts = 256;
  const int64_t needed_parts = ceil_div(rows, kRowsOfPart);
  const int64_t parts = needed_parts < kMaxParts ? needed_parts : kMaxParts;
  if (parts <= 1) {
    launch_column_sums(out, in, rows, width, stride, 1, term, accumulate);
    return;
  }
  const Tensor partial = Tensor::empty({parts, width}, dtype_of<To>(), device);
  To* const sums = partial.data<To>();
  launch_column_sums(sums, in, rows, width, stride, parts, term, false);
  launch_column_sums(out, static_cast<const To*>(sums), parts, width, width, 1, Itself{}, accumulate);
}

}  // namespace quire::cuda
