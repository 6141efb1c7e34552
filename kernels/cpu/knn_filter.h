// A filter for exact search: products of 8-bit integers, of which a processor computes four times as many as of f32,
// tell which scores may exceed a limit. The bound on their error holds for every input, so a search that scores only
// the keys that pass finds exactly what a search of all keys finds.
//
// With q' = sq q8 and k' = s k8 (|q - q'| = eq and, for every key of a block, |k - k'| <= e, |k| <= n):
//   |q.k - sq s (q8.k8)| <= |q - q'| |k| + |q'| |k - k'| <= eq n + |q'| e
// plus the rounding error of an f32 sum of D products. Keys are stored with 128 added, because the AVX-512 VNNI
// instruction multiplies unsigned bytes by signed ones.
#pragma once

#include "kernels/cpu/knn_memory.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#endif

namespace quire::cpu {

#if defined(__AVX512F__) && defined(__AVX512BW__)

inline constexpr bool kFilterBuilt = true;
inline bool can_filter() {
  static const bool can = __builtin_cpu_supports("avx512vnni") != 0;
  return can;
}

// Returns in `hits` the bits of the keys in two vectors that pass, for R queries.
template <int R>
__attribute__((target("avx512vnni"))) void filter_tile(int64_t quads, const int32_t* queries, const int32_t* limits,
                                                       const int32_t* panel, uint32_t* hits) {
  __m512i sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int64_t i = 0; i < quads; ++i) {
    const __m512i low = _mm512_loadu_si512(panel + 32 * i);
    const __m512i high = _mm512_loadu_si512(panel + 32 * i + 16);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512i factor = _mm512_set1_epi32(queries[r * quads + i]);
      sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], low, factor);
      sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], high, factor);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512i limit = _mm512_set1_epi32(limits[r]);
    hits[r] = bits_of_mask(_mm512_cmpgt_epi32_mask(sum[r][0], limit)) |
              bits_of_mask(_mm512_cmpgt_epi32_mask(sum[r][1], limit)) << 16;
  }
}

using FilterTile = void (*)(int64_t, const int32_t*, const int32_t*, const int32_t*, uint32_t*);

template <int... R>
constexpr std::array<FilterTile, sizeof...(R)> filter_tiles(std::integer_sequence<int, R...>) {
  return {filter_tile<R + 1>...};
}

class KnnFilter {
 public:
  // Uses slots 10 to 12 of scratch.
  KnnFilter(const float* queries, int64_t count, int64_t size)
      : count_(count),
        size_(size),
        quads_(ceil_div(size, 4)),
        queries_(scratch<int32_t>(10, count * quads_)),
        limits_(scratch<int32_t>(11, count)),
        of_query_(scratch<double>(10, count * kNumbers)) {
    for (int64_t n = 0; n < count; ++n) add_query(n, queries + n * size);
  }

  // Loads entries [first, first + count). Returns false when one is not finite: such a block must be searched without
  // the filter.
  template <typename S>
  bool load(const StoredVectors<float, S>& keys, int64_t first, int64_t count) {
    constexpr int64_t kWidth = kLanes<float>;
    float* const room = scratch<float>(11, kWidth * size_);
    Vector<float> top{};
    bool finite = true;
    // Rows are read twice: first for the largest number, then to round with it.
    for (int64_t j = 0; j < count; j += kWidth) {
      const int64_t some = std::min(kWidth, count - j);
      const auto rows = keys.rows(first + j, some, room);
      for (int64_t r = 0; r < some; ++r) finite = largest(top, rows.data + r * rows.stride) && finite;
    }
    float max_value = 0;
    for (int i = 0; i < kWidth; ++i) max_value = std::max(max_value, top[i]);
    if (!finite || !(max_value < 1e30F) || size_ > kLargestSize) return false;
    step_ = max_value > 1e-30F ? max_value / 127 : 1.0F;
    const float inverse = 1 / step_;
    inverse_step_ = 1 / static_cast<double>(step_);
    panels_ = scratch<int32_t>(12, ceil_div(count, int64_t{kPanel<float>}) * kPanel<float> * quads_);
    int8_t* const bytes = scratch<int8_t>(11, kWidth * quads_ * 4 + kVectorBytes);
    std::fill(bytes, bytes + kWidth * quads_ * 4 + kVectorBytes, int8_t{0});
    int32_t longest = 0;
    float farthest = 0;
    for (int64_t j = 0; j < count; j += kPanel<float>) {
      int32_t* const panel = panels_ + j * quads_;
      for (int64_t x = 0; x < kPanel<float>; x += kWidth) {
        const int64_t some = std::clamp<int64_t>(count - j - x, 0, kWidth);
        if (some > 0) {
          const auto rows = keys.rows(first + j + x, some, room);
          for (int64_t r = 0; r < some; ++r) {
            const float off = quantize(bytes + r * quads_ * 4, rows.data + r * rows.stride, inverse);
            farthest = std::max(farthest, off);
          }
        }
        // Four bytes of a key form a lane; moving them as f32 does not change their bits.
        transpose_rows(reinterpret_cast<float*>(panel) + x, kPanel<float>, reinterpret_cast<const float*>(bytes),
                       quads_, some, quads_);
        longest = std::max(longest, finish_lanes(panel + x));
      }
    }
    // Each difference is wrong by at most the quotient's rounding, 127 * 2^-23 of a step.
    error_ =
        step_ * (std::sqrt(static_cast<double>(farthest) * (1 + 1e-4)) + 2e-5 * std::sqrt(static_cast<double>(size_)));
    norm_ = step_ * std::sqrt(static_cast<double>(longest)) + error_;
    return true;
  }

  // Sets the limits that scores must exceed, for the loaded block. NaN: everything passes.
  void set_limits(const float* limits) {
    for (int64_t n = 0; n < count_; ++n) set_limit(n, limits[n]);
  }
  void set_limit(int64_t query, float limit) {
    const double* const of = of_query_ + query * kNumbers;
    const double error = of[kError] * norm_ + of[kRoundedNorm] * error_ + static_cast<double>(size_ + 16) * 0x1p-149;
    // Two more account for the rounding of this bound itself.
    const double bound = (limit - error) * of[kInverseStep] * inverse_step_ - 3 + of[kOffset];
    constexpr int32_t kAll = std::numeric_limits<int32_t>::min();
    // A bound outside the range of sums lets everything or nothing pass; NaN lets everything pass.
    limits_[query] = bound > -2e9 ? static_cast<int32_t>(bound < 2e9 ? bound : 2e9) : kAll;
  }

  // hits[r]: bits of the keys of panel p that may exceed the limit of query + r. Returns a bit for each r that has any.
  uint32_t run(int64_t query, int64_t rows, int64_t p, uint32_t (&hits)[16]) const {
    static constexpr auto table = filter_tiles(std::make_integer_sequence<int, kTileRows>{});
    table[static_cast<size_t>(rows - 1)](quads_, queries_ + query * quads_, limits_ + query,
                                         panels_ + p * kPanel<float> * quads_, hits);
    return _mm512_test_epi32_mask(_mm512_loadu_si512(hits), _mm512_loadu_si512(hits)) & ((uint32_t{1} << rows) - 1);
  }

 private:
  enum : int64_t { kInverseStep, kError, kRoundedNorm, kOffset, kNumbers };
  // The largest size for which sums stay far from the limits of an i32.
  static constexpr int64_t kLargestSize = 16384;

  void add_query(int64_t n, const float* q) {
    double* const of = of_query_ + n * kNumbers;
    auto* const bytes = reinterpret_cast<int8_t*>(queries_ + n * quads_);
    float max_value = 0;
    bool finite = true;
    for (int64_t d = 0; d < size_; ++d) {
      const float x = std::abs(q[d]);
      finite = finite && x < 1e30F;
      max_value = std::max(max_value, x);
    }
    const double step = max_value > 1e-30F ? max_value / 127.0 : 1.0;
    double error = 0;
    double rounded = 0;
    double norm = 0;
    int64_t sum = 0;
    for (int64_t d = 0; d < quads_ * 4; ++d) {
      const double x = d < size_ && finite ? q[d] : 0.0;
      const auto nearest = static_cast<int64_t>(std::nearbyint(x / step));
      bytes[d] = static_cast<int8_t>(nearest);
      sum += nearest;
      const double back = static_cast<double>(nearest) * step;
      error += (x - back) * (x - back);
      rounded += back * back;
      norm += x * x;
    }
    of[kInverseStep] = 1 / step;
    // Twice the rounding error of an f32 sum of `size` products, plus that of this bound.
    const double sums = static_cast<double>(size_ + 16) * 0x1p-23 * std::sqrt(norm);
    of[kError] = finite ? std::sqrt(error) * (1 + 1e-6) + sums : std::numeric_limits<double>::quiet_NaN();
    of[kRoundedNorm] = std::sqrt(rounded) * (1 + 1e-6);
    of[kOffset] = 128.0 * static_cast<double>(sum);
  }

  // Updates the largest absolute number; returns false when a number is not finite.
  bool largest(Vector<float>& top, const float* row) const {
    constexpr int64_t kWidth = kLanes<float>;
    int64_t d = 0;
    for (; d + kWidth <= size_; d += kWidth) {
      const Vector<float> x = (Vector<float>)_mm512_abs_ps((__m512)load_vector(row + d));
      top = larger<float>(x, top);
      top = x == x ? top : Vector<float>{} + std::numeric_limits<float>::infinity();
    }
    bool finite = true;
    for (; d < size_; ++d) {
      finite = finite && std::abs(row[d]) < std::numeric_limits<float>::infinity();
      top[0] = std::max(top[0], std::abs(row[d]));
    }
    return finite;
  }

  // Rounds a key; returns its squared distance from the original, in steps.
  float quantize(int8_t* to, const float* row, float inverse) const {
    constexpr int64_t kWidth = kLanes<float>;
    const __m512 factor = _mm512_set1_ps(inverse);
    __m512 sum = _mm512_setzero_ps();
    int64_t d = 0;
    for (; d + kWidth <= size_; d += kWidth) {
      const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(row + d), factor);
      const __m512i nearest = _mm512_cvtps_epi32(x);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + d), _mm512_cvtsepi32_epi8(nearest));
      const __m512 off = _mm512_sub_ps(x, _mm512_cvtepi32_ps(nearest));
      sum = _mm512_fmadd_ps(off, off, sum);
    }
    float rest = 0;
    for (; d < size_; ++d) {
      const float x = row[d] * inverse;
      const float nearest = std::nearbyint(x);
      to[d] = static_cast<int8_t>(nearest);
      rest += (x - nearest) * (x - nearest);
    }
    return _mm512_reduce_add_ps(sum) + rest;
  }

  // Returns the largest squared norm of 16 keys, then adds 128 to every byte.
  __attribute__((target("avx512vnni"))) int32_t finish_lanes(int32_t* lanes) const {
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < quads_; ++i) {
      int32_t* const at = lanes + i * kPanel<float>;
      const __m512i x = _mm512_loadu_si512(at);
      const __m512i size = _mm512_abs_epi8(x);
      sum = _mm512_dpbusd_epi32(sum, size, size);
      _mm512_storeu_si512(at, _mm512_xor_si512(x, _mm512_set1_epi8(-128)));
    }
    // (g++ 12 warns about its own header's maximum over lanes.)
    int32_t norms[16];
    _mm512_storeu_si512(norms, sum);
    return *std::max_element(norms, norms + 16);
  }

  int64_t count_, size_, quads_;
  int32_t* queries_;
  int32_t* limits_;
  double* of_query_;
  int32_t* panels_ = nullptr;
  float step_ = 1;
  double inverse_step_ = 1;
  double error_ = 0;
  double norm_ = 0;
};

#else

inline constexpr bool kFilterBuilt = false;
inline constexpr bool can_filter() {
  return false;
}

#endif

}  // namespace quire::cpu
