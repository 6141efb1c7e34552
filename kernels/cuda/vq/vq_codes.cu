// Finds nearest codewords, and sums vectors by codeword.
#include "kernels/cuda/vq/vq_codes.h"

#include "kernels/cuda/basic/total.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/sort.h"
#include "kernels/cuda/sorted.h"

namespace quire::cuda {

namespace {

// Computes |c|^2 / 2 with one warp per codeword, so that equal codewords have equal norms.
template <typename A>
__global__ void half_norms_kernel(A* norms, const A* codebook, int64_t codewords, int64_t size) {
  const int64_t s = first_element() / kWarp;
  A sum = 0;
  if (s < codewords) {
    for (int64_t d = threadIdx.x % kWarp; d < size; d += kWarp) {
      sum += codebook[s * size + d] * codebook[s * size + d];
    }
  }
  sum = warp_sum(sum);
  if (s < codewords && threadIdx.x % kWarp == 0) norms[s] = sum / 2;
}

// A block has 64 vectors of a head (y), and goes over the codewords 64 at a time. A thread keeps the best of its
// codewords for each of its vectors.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    nearest_code_kernel(int32_t* codes, T* quantized, Wide<T>* error, NearestOperands<T> in) {
  using A = Wide<T>;
  alignas(kVectorBytes) __shared__ A content[kTile * kDepthStride];  // read as Quad
  alignas(kVectorBytes) __shared__ A direct[kTile * kDepthStride];
  __shared__ int found[kTile];
  const int64_t first_vector = static_cast<int64_t>(blockIdx.x) * kTile;
  const int head = static_cast<int>(blockIdx.y);
  const A* const codebook = in.codebook + static_cast<int64_t>(head) * in.codes * in.size;
  const A* const norms = in.norms + static_cast<int64_t>(head) * in.codes;
  const auto line_of = [&](int a) { return ((first_vector + a) * in.kv_heads + head) * in.size; };

  A nearest[kEach];
  int best[kEach] = {};
  for (int i = 0; i < kEach; ++i) nearest[i] = std::numeric_limits<A>::infinity();
  for (int first_code = 0; first_code < in.codes; first_code += kTile) {
    Pairs<A> products = {};
    for (int begin = 0; begin < in.size; begin += kDepth) {
      const int features = in.size - begin < kDepth ? in.size - begin : kDepth;
      fill_lines<kDepth, kDepthStride>(content, kTile, begin, in.size, [&](int a, int f) {
        return load_quad(first_vector + a < in.vectors ? in.x + line_of(a) : nullptr, f, in.size, in.quads);
      });
      fill_lines<kDepth, kDepthStride>(direct, kTile, begin, in.size, [&](int c, int f) {
        const A* const line =
            first_code + c < in.codes ? codebook + static_cast<int64_t>(first_code + c) * in.size : nullptr;
        return load_quad(line, f, in.size, in.quads);
      });
      __syncthreads();
      add_direct(products, content, direct, features);
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int code = first_code + thread_x() + j * kSide;
      if (code >= in.codes) continue;
      const A norm = norms[code];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const A value = norm - products[i][j];
        if (value < nearest[i]) {
          nearest[i] = value;
          best[i] = code;
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    // The 16 threads of a line form half a warp.
    for (int bits = kSide / 2; bits > 0; bits /= 2) {
      const A value = __shfl_xor_sync(kAllLanes, nearest[i], bits);
      const int code = __shfl_xor_sync(kAllLanes, best[i], bits);
      if (is_nearer(value, code, nearest[i], best[i])) {
        nearest[i] = value;
        best[i] = code;
      }
    }
    if (thread_x() == 0) found[thread_y() + i * kSide] = best[i];
  }
  __syncthreads();
  store_nearest(codes, quantized, error, found, in, first_vector, head);
}

void nearest_code(const Tensor& codes, const Tensor& quantized, const Tensor& error, const Tensor& x,
                  const Tensor& codebook) {
  const CodeSizes s = check_nearest_code(codes, quantized, error, x, codebook);
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    const Tensor norms = Tensor::empty({s.kv_heads, s.codes}, dtype_of<A>(), x.device());
    const int64_t codewords = s.kv_heads * s.codes;
    launch(half_norms_kernel<A>, dim3(static_cast<unsigned>(ceil_div(codewords, kBlock / kWarp))), kBlock, 0,
           norms.data<A>(), codebook.data<A>(), codewords, s.size);
    const NearestOperands<T> in{x.data<T>(),
                                codebook.data<A>(),
                                norms.data<A>(),
                                s.vectors,
                                static_cast<int>(s.kv_heads),
                                static_cast<int>(s.codes),
                                static_cast<int>(s.size),
                                in_quads<T>(s.size, {&x}) && in_quads<A>(s.size, {&codebook})};
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (nearest_suits_tensor_cores(x, s)) return nearest_on_tensor_cores(codes, quantized, error, in);
    }
    launch(nearest_code_kernel<T>,
           dim3(static_cast<unsigned>(ceil_div(s.vectors, kTile)), static_cast<unsigned>(s.kv_heads)), kThreads, 0,
           codes.data<int32_t>(), quantized.data<T>(), error.data<A>(), in);
  });
}

template <typename T, int kPack>
__global__ void nearest_code_backward_kernel(T* dx, const T* dquantized, const T* x, const T* quantized,
                                             const uint8_t* mask, const double* factor, int64_t count, int64_t width,
                                             bool aligned) {
  const auto twice = static_cast<Wide<T>>(2 * factor[0]);
  for (int64_t i = first_element() * kPack; i < count; i += element_stride() * kPack) {
    const bool counts = mask[i / width] != 0;
    const Pack<T, kPack> key = load<kPack>(x + i, aligned);
    const Pack<T, kPack> codeword = load<kPack>(quantized + i, aligned);
    Pack<T, kPack> through{};
    if (dquantized != nullptr) through = load<kPack>(dquantized + i, aligned);
    Pack<T, kPack> sum;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const Wide<T> apart = wide(key.value[k]) - wide(codeword.value[k]);
      sum.value[k] = narrow<T>((counts ? twice * apart : Wide<T>{0}) + wide(through.value[k]));
    }
    store<kPack>(dx + i, sum, aligned);
  }
}

void nearest_code_backward(const Tensor& dx, const Tensor& dquantized, const Tensor& x, const Tensor& quantized,
                           const Tensor& mask, const Tensor& factor) {
  check_nearest_code_backward(dx, dquantized, x, quantized, mask, factor);
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool aligned =
        are_aligned({dx.raw(), x.raw(), quantized.raw()}) && (!dquantized.defined() || are_aligned({dquantized.raw()}));
    with_pack<T>(x.dim(2), [&](auto pack) {
      constexpr int kPack = decltype(pack)::value;
      launch(nearest_code_backward_kernel<T, kPack>, blocks_for(x.numel() / kPack), kBlock, 0, dx.data<T>(),
             data_or_null<T>(dquantized), x.data<T>(), quantized.data<T>(), mask.data<uint8_t>(), factor.data<double>(),
             x.numel(), x.dim(1) * x.dim(2), aligned);
    });
  });
}

template <typename A>
__global__ void masked_kernel(A* to, const A* x, const uint8_t* mask, int64_t count, int64_t width) {
  for (int64_t i = first_element(); i < count; i += element_stride()) to[i] = mask[i / width] != 0 ? x[i] : A{0};
}

void masked_sum(const Tensor& total, const Tensor& x, const Tensor& mask) {
  check_masked_sum(total, x, mask);
  dispatch_wide(x.dtype(), [&](auto type) {
    using A = decltype(type);
    const Tensor counted = Tensor::empty_like(x);
    launch(masked_kernel<A>, blocks_for(x.numel()), kBlock, 0, counted.data<A>(), x.data<A>(), mask.data<uint8_t>(),
           x.numel(), x.dim(1));
    add_up(x.device(), total.data<double>(), static_cast<const A*>(counted.data<A>()), x.numel(), false);
  });
}

// Numbers each vector by its codeword among those of all heads; vectors that do not count get the number after the last
// one.
__global__ void number_kernel(int32_t* keys, int32_t* vectors, const int32_t* codes, const uint8_t* mask, int64_t count,
                              int64_t kv_heads, int64_t codewords) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t code = codes[i];
    const bool counts = mask[i / kv_heads] != 0 && code >= 0 && code < codewords;
    keys[i] = static_cast<int32_t>(counts ? i % kv_heads * codewords + code : kv_heads * codewords);
    vectors[i] = static_cast<int32_t>(i);
  }
}

// A block takes one codeword. Half a warp takes every sixteenth of its vectors, and a lane a pack of columns; the sums
// of all half warps are added in order.
template <typename T, int kPack>
__global__ void code_statistics_kernel(Wide<T>* counts, Wide<T>* sums, const T* x, const int32_t* keys,
                                       const int32_t* vectors, int64_t count, int64_t size, bool aligned) {
  using A = Wide<T>;
  constexpr int kLanes = kWarp / 2;
  constexpr int kGroups = kBlock / kLanes;
  __shared__ Pack<A, kPack> partial[kGroups][kLanes];
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t codeword = blockIdx.x;
  const int64_t begin = lower_bound(keys, 0, count, codeword);
  const int64_t end = lower_bound(keys, begin, count, codeword + 1);
  if (threadIdx.x == 0) counts[codeword] += static_cast<A>(end - begin);
  for (int64_t first = 0; first < size; first += kLanes * kPack) {
    const int64_t d = first + lane * kPack;
    Pack<A, kPack> sum{};
    for (int64_t i = begin + group; i < end && d < size; i += kGroups) {
      const Pack<T, kPack> pack = load<kPack>(x + vectors[i] * size + d, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum.value[k] += wide(pack.value[k]);
    }
    partial[group][lane] = sum;
    __syncthreads();
    const int c = static_cast<int>(threadIdx.x);
    if (c < kLanes * kPack && first + c < size) {
      A total = 0;
      for (int other = 0; other < kGroups; ++other) total += partial[other][c / kPack].value[c % kPack];
      sums[codeword * size + first + c] += total;
    }
    __syncthreads();
  }
}

void code_statistics(const Tensor& counts, const Tensor& sums, const Tensor& x, const Tensor& codes,
                     const Tensor& mask) {
  const CodeSizes s = check_code_statistics(counts, sums, x, codes, mask);
  const int64_t count = codes.numel();
  const int64_t codewords = s.kv_heads * s.codes;
  if (count == 0) return;
  const Tensor numbered = Tensor::empty({4, count}, DType::i32, x.device());
  const Tensor keys = numbered.select(0, 2);
  const Tensor vectors = numbered.select(0, 3);
  launch(number_kernel, blocks_for(count), kBlock, 0, numbered.select(0, 0).data<int32_t>(),
         numbered.select(0, 1).data<int32_t>(), codes.data<int32_t>(), mask.data<uint8_t>(), count, s.kv_heads,
         s.codes);
  sort_pairs(keys, vectors, numbered.select(0, 0), numbered.select(0, 1), bits_of(codewords));
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    with_pack<T>(s.size, [&](auto pack) {
      launch(code_statistics_kernel<T, decltype(pack)::value>, dim3(static_cast<unsigned>(codewords)), kBlock, 0,
             counts.data<Wide<T>>(), sums.data<Wide<T>>(), x.data<T>(), keys.data<int32_t>(), vectors.data<int32_t>(),
             count, s.size, are_aligned({x.raw()}));
    });
  });
}

template <typename T>
__global__ void gather_vectors_kernel(Wide<T>* to, const T* x, const int32_t* index, int64_t count, int64_t vectors,
                                      int64_t kv_heads, int64_t codes, int64_t size) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t codeword = i / size;
    const int64_t n = index[codeword];
    if (n >= 0 && n < vectors) to[i] += wide(x[(n * kv_heads + codeword / codes) * size + i % size]);
  }
}

void gather_vectors(const Tensor& to, const Tensor& x, const Tensor& index) {
  const CodeSizes s = check_gather_vectors(to, x, index);
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(gather_vectors_kernel<T>, blocks_for(to.numel()), kBlock, 0, to.data<Wide<T>>(), x.data<T>(),
           index.data<int32_t>(), to.numel(), s.vectors, s.kv_heads, s.codes, s.size);
  });
}

}  // namespace

void bind_vq_codes() {
  ops::nearest_code.bind(DeviceKind::cuda, nearest_code);
  ops::nearest_code_backward.bind(DeviceKind::cuda, nearest_code_backward);
  ops::masked_sum.bind(DeviceKind::cuda, masked_sum);
  ops::code_statistics.bind(DeviceKind::cuda, code_statistics);
  ops::gather_vectors.bind(DeviceKind::cuda, gather_vectors);
}

}  // namespace quire::cuda
