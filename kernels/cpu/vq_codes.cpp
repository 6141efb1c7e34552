// Finds nearest codewords, and gathers or sums vectors by code.
#include <limits>

#include "kernels/cpu/product.h"
#include "kernels/vq_sizes.h"

namespace quire::cpu {

namespace {

constexpr int64_t kVectorBlock = 64;
constexpr int64_t kCodeBlock = 128;
// The codewords of a head are divided among this many tasks, each of which reads all vectors in order.
constexpr int64_t kCodeParts = 8;

// Returns |c|^2 / 2 of each codeword. Sums run over one element after the other, so that equal codewords have equal
// norms, wherever they lie.
template <typename T>
Tensor half_norms(const Tensor& codebook, const CodeSizes& s) {
  const Tensor norms = Tensor::empty({s.kv_heads, s.codes}, codebook.dtype());
  const T* c = codebook.data<T>();
  for (int64_t i = 0; i < s.kv_heads * s.codes; ++i) {
    double sum = 0;
    for (int64_t d = 0; d < s.size; ++d) {
      const double value = c[i * s.size + d];
      sum += value * value;
    }
    norms.data<T>()[i] = static_cast<T>(sum / 2);
  }
  return norms;
}

// Writes the codes of `count` vectors of a head: the codeword with the smallest |c|^2 / 2 - x.c; vectors lie along
// lanes.
template <typename T>
void find_codes(int32_t* codes, const T* x, int64_t count, const T* codebook, const T* norms, const CodeSizes& s) {
  constexpr int64_t kWidth = kLanes<T>;
  T* const by_feature = scratch<T>(0, s.size * kVectorBlock);
  T* const products = scratch<T>(1, kCodeBlock * kVectorBlock);
  T* const nearest = scratch<T>(2, kVectorBlock);
  T* const best = scratch<T>(3, kVectorBlock);
  const int64_t lanes = ceil_div(count, kWidth) * kWidth;
  for (int64_t a = 0; a < lanes; a += kWidth) {
    transpose_rows(by_feature + a, kVectorBlock, x + a * s.kv_heads * s.size, s.kv_heads * s.size,
                   std::min(kWidth, count - a), s.size);
  }
  std::fill(nearest, nearest + lanes, std::numeric_limits<T>::infinity());
  std::fill(best, best + lanes, T{0});
  for (int64_t first = 0; first < s.codes; first += kCodeBlock) {
    const int64_t block = std::min(kCodeBlock, s.codes - first);
    block_product(products, kVectorBlock, Operand<T>{codebook + first * s.size, s.size}, by_feature, kVectorBlock,
                  block, lanes, s.size, false);
    for (int64_t a = 0; a < lanes; a += kWidth) {
      Vector<T> lowest = load_vector(nearest + a);
      Vector<T> code = load_vector(best + a);
      for (int64_t j = 0; j < block; ++j) {
        const Vector<T> value = norms[first + j] - load_vector(products + j * kVectorBlock + a);
        const auto less = value < lowest;
        lowest = less ? value : lowest;
        code = less ? static_cast<T>(first + j) - Vector<T>{} : code;
      }
      store_vector(nearest + a, lowest);
      store_vector(best + a, code);
    }
  }
  for (int64_t a = 0; a < count; ++a) codes[a * s.kv_heads] = static_cast<int32_t>(best[a]);
}

void nearest_code(const Tensor& codes, const Tensor& quantized, const Tensor& error, const Tensor& x,
                  const Tensor& codebook) {
  const CodeSizes s = check_nearest_code(codes, quantized, error, x, codebook);
  // Codes are compared as numbers of the element type, so they must be exact in f32.
  QUIRE_CHECK(s.codes < int64_t{1} << 24, "nearest_code: {} codewords", s.codes);
  dispatch("nearest_code", x.dtype(), [&](auto type) {
    using T = decltype(type);
    const Tensor norms = half_norms<T>(codebook, s);
    const int64_t blocks = ceil_div(s.vectors, kVectorBlock);
    parallel_for(blocks * s.kv_heads, [&](int64_t tile) {
      const int64_t head = tile % s.kv_heads;
      const int64_t first = tile / s.kv_heads * kVectorBlock;
      const int64_t count = std::min(kVectorBlock, s.vectors - first);
      const T* c = codebook.data<T>() + head * s.codes * s.size;
      const int64_t at = first * s.kv_heads + head;
      int32_t* const code = codes.data<int32_t>() + at;
      find_codes(code, x.data<T>() + at * s.size, count, c, norms.data<T>() + head * s.codes, s);
      for (int64_t a = 0; a < count; ++a) {
        const int64_t n = at + a * s.kv_heads;
        const ConstArrayView<T> from(x.data<T>() + n * s.size, s.size);
        const ConstArrayView<T> codeword(c + code[a * s.kv_heads] * s.size, s.size);
        ArrayView<T>(quantized.data<T>() + n * s.size, s.size) = codeword;
        error.data<T>()[n] = (from - codeword).square().sum();
      }
    });
  });
}

void nearest_code_backward(const Tensor& dx, const Tensor& dquantized, const Tensor& x, const Tensor& quantized,
                           const Tensor& mask, const Tensor& factor) {
  check_nearest_code_backward(dx, dquantized, x, quantized, mask, factor);
  const int64_t width = x.dim(1) * x.dim(2);
  dispatch("nearest_code_backward", x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T twice = static_cast<T>(2 * factor.data<double>()[0]);
    for_rows(x.dim(0), width, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        ArrayView<T> to(dx.data<T>() + n * width, width);
        const ConstArrayView<T> from(x.data<T>() + n * width, width);
        const ConstArrayView<T> codeword(quantized.data<T>() + n * width, width);
        if (mask.data<uint8_t>()[n] != 0) {
          to = twice * (from - codeword);
        } else {
          to.setZero();
        }
        if (dquantized.defined()) to += ConstArrayView<T>(dquantized.data<T>() + n * width, width);
      }
    });
  });
}

void masked_sum(const Tensor& total, const Tensor& x, const Tensor& mask) {
  check_masked_sum(total, x, mask);
  const int64_t rows = x.dim(0);
  const int64_t width = x.dim(1);
  dispatch("masked_sum", x.dtype(), [&](auto type) {
    using T = decltype(type);
    double sum = 0;
    for (int64_t n = 0; n < rows; ++n) {
      if (mask.data<uint8_t>()[n] == 0) continue;
      for (int64_t i = 0; i < width; ++i) sum += x.data<T>()[n * width + i];
    }
    total.data<double>()[0] = sum;
  });
}

void code_statistics(const Tensor& counts, const Tensor& sums, const Tensor& x, const Tensor& codes,
                     const Tensor& mask) {
  const CodeSizes s = check_code_statistics(counts, sums, x, codes, mask);
  dispatch("code_statistics", x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(s.kv_heads * kCodeParts, [&](int64_t tile) {
      const int64_t head = tile / kCodeParts;
      const int64_t part = tile % kCodeParts;
      const int64_t begin = s.codes * part / kCodeParts;
      const int64_t end = s.codes * (part + 1) / kCodeParts;
      for (int64_t n = 0; n < s.vectors; ++n) {
        const int64_t code = codes.data<int32_t>()[n * s.kv_heads + head];
        if (code < begin || code >= end || mask.data<uint8_t>()[n] == 0) continue;
        const int64_t at = head * s.codes + code;
        counts.data<T>()[at] += T{1};
        ArrayView<T>(sums.data<T>() + at * s.size, s.size) +=
            ConstArrayView<T>(x.data<T>() + (n * s.kv_heads + head) * s.size, s.size);
      }
    });
  });
}

void lookup_codes(const Tensor& quantized, const Tensor& codes, const Tensor& codebook) {
  const CodeSizes s = check_lookup_codes(quantized, codes, codebook);
  dispatch("lookup_codes", quantized.dtype(), [&](auto type) {
    using T = decltype(type);
    for_rows(s.vectors * s.kv_heads, s.size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t code = codes.data<int32_t>()[i];
        T* const to = quantized.data<T>() + i * s.size;
        if (code >= 0 && code < s.codes) {
          std::copy_n(codebook.data<T>() + (i % s.kv_heads * s.codes + code) * s.size, s.size, to);
        } else {
          std::fill_n(to, s.size, T{0});
        }
      }
    });
  });
}

void gather_vectors(const Tensor& to, const Tensor& x, const Tensor& index) {
  const CodeSizes s = check_gather_vectors(to, x, index);
  dispatch("gather_vectors", x.dtype(), [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < s.kv_heads * s.codes; ++i) {
      const int64_t n = index.data<int32_t>()[i];
      if (n < 0) continue;
      QUIRE_CHECK(n < s.vectors, "gather_vectors: vector {} of {}", n, s.vectors);
      ArrayView<T>(to.data<T>() + i * s.size, s.size) +=
          ConstArrayView<T>(x.data<T>() + (n * s.kv_heads + i / s.codes) * s.size, s.size);
    }
  });
}

}  // namespace

void bind_vq_codes() {
  ops::nearest_code.bind(DeviceKind::cpu, nearest_code);
  ops::nearest_code_backward.bind(DeviceKind::cpu, nearest_code_backward);
  ops::masked_sum.bind(DeviceKind::cpu, masked_sum);
  ops::code_statistics.bind(DeviceKind::cpu, code_statistics);
  ops::lookup_codes.bind(DeviceKind::cpu, lookup_codes);
  ops::gather_vectors.bind(DeviceKind::cpu, gather_vectors);
}

}  // namespace quire::cpu
