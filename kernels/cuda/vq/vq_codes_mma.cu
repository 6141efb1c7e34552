// Nearest codewords of vectors in bf16 on tensor cores: a codeword is the sum of three numbers in bf16, which hold the
// 24 bits of f32; their products with vectors are exact, and sums are f32. It is not documented how a GPU's tensor
// cores round these sums, so of two codewords whose distances differ only in the last bits it may take either.
#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/vq/vq_codes.h"

namespace quire::cuda {

bool nearest_suits_tensor_cores(const Tensor& x, const CodeSizes& sizes) {
  return x.dtype() == DType::bf16 && sizes.size % 8 == 0 && sizes.size <= kMmaWidest &&
         reinterpret_cast<uintptr_t>(x.raw()) % sizeof(Words) == 0;
}

namespace {

constexpr int kTerms = 3;

// Splits each value into terms[n], the largest first, whose sum is the value.
__global__ void split_kernel(bfloat16* terms, const float* values, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    float rest = values[i];
#pragma unroll
    for (int n = 0; n < kTerms; ++n) {
      const bfloat16 term(rest);
      terms[n * count + i] = term;
      rest -= static_cast<float>(term);
    }
  }
}

template <int kWidth>
struct NearestMemory {
  SharedLines<kWidth> vectors, terms[kTerms];
  int* found;

  static constexpr size_t bytes() {
    return (1 + kTerms) * kMmaTile * kWidth * sizeof(bfloat16) + kMmaTile * sizeof(int);
  }
  __device__ NearestMemory() {
    vectors = {dynamic_shared<bfloat16>()};
    for (int n = 0; n < kTerms; ++n) terms[n] = {vectors.begin + (n + 1) * kMmaTile * kWidth};
    found = reinterpret_cast<int*>(vectors.begin + (1 + kTerms) * kMmaTile * kWidth);
  }
};

// A block has 64 vectors of a head (y), of which a warp has 16, and goes over the codewords 64 at a time. A lane keeps
// the best of its codewords for its two vectors.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    nearest_code_mma_kernel(int32_t* codes, bfloat16* quantized, float* error, NearestOperands<bfloat16> in,
                            const bfloat16* terms) {
  constexpr int kColumns = kMmaTile / kMmaColumns;
  const NearestMemory<kWidth> memory;
  const int64_t first_vector = static_cast<int64_t>(blockIdx.x) * kMmaTile;
  const int head = static_cast<int>(blockIdx.y);
  const int first_line = warp_of_block() * kMmaRows;
  const float* const norms = in.norms + static_cast<int64_t>(head) * in.codes;
  const auto fetch_codewords = [&](int first_code) {
    const int64_t codebook = static_cast<int64_t>(in.kv_heads) * in.codes * in.size;
#pragma unroll
    for (int n = 0; n < kTerms; ++n) {
      copy_lines<kMmaTile>(memory.terms[n], in.size, in.x, [&](int c) {
        const int64_t codeword = static_cast<int64_t>(head) * in.codes + first_code + c;
        return first_code + c < in.codes ? terms + n * codebook + codeword * in.size : nullptr;
      });
    }
  };

  copy_lines<kMmaTile>(memory.vectors, in.size, in.x, [&](int a) {
    return first_vector + a < in.vectors ? in.x + ((first_vector + a) * in.kv_heads + head) * in.size : nullptr;
  });
  fetch_codewords(0);
  float nearest[2] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
  int best[2] = {0, 0};
  for (int first_code = 0; first_code < in.codes; first_code += kMmaTile) {
    await_copies();
    __syncthreads();
    SumFragment products[1][kColumns] = {};
    // Small terms are added first.
#pragma unroll
    for (int n = kTerms - 1; n >= 0; --n) {
      multiply_lines(products, memory.vectors, first_line, memory.terms[n], 0, in.size);
    }
    __syncthreads();  // nobody reads these codewords any more
    if (first_code + kMmaTile < in.codes) fetch_codewords(first_code + kMmaTile);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int code = first_code + n * kMmaColumns + column_of_sum(i);
        if (code >= in.codes) continue;
        const float value = norms[code] - products[0][n].x[i];
        if (value < nearest[i / 2]) {
          nearest[i / 2] = value;
          best[i / 2] = code;
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    for (int bits = 2; bits > 0; bits /= 2) {
      const float value = __shfl_xor_sync(kAllLanes, nearest[half], bits);
      const int code = __shfl_xor_sync(kAllLanes, best[half], bits);
      if (is_nearer(value, code, nearest[half], best[half])) {
        nearest[half] = value;
        best[half] = code;
      }
    }
    if (lane_of_warp() % 4 == 0) memory.found[first_line + row_of_sum(2 * half)] = best[half];
  }
  __syncthreads();
  store_nearest(codes, quantized, error, memory.found, in, first_vector, head);
}

}  // namespace

void nearest_on_tensor_cores(const Tensor& codes, const Tensor& quantized, const Tensor& error,
                             const NearestOperands<bfloat16>& in) {
  const int64_t values = static_cast<int64_t>(in.kv_heads) * in.codes * in.size;
  const Tensor terms = Tensor::empty({kTerms, values}, DType::bf16, codes.device());
  launch(split_kernel, blocks_for(values), kBlock, 0, terms.data<bfloat16>(), in.codebook, values);
  const dim3 blocks(static_cast<unsigned>(ceil_div(in.vectors, kMmaTile)), static_cast<unsigned>(in.kv_heads));
  const auto with_width = [&](auto width) {
    launch(nearest_code_mma_kernel<width>, blocks, kMmaThreads, NearestMemory<width>::bytes(), codes.data<int32_t>(),
           quantized.data<bfloat16>(), error.data<float>(), in, terms.data<bfloat16>());
  };
  if (in.size <= 64) return with_width(std::integral_constant<int, 64>{});
  with_width(std::integral_constant<int, kMmaWidest>{});
}

}  // namespace quire::cuda
