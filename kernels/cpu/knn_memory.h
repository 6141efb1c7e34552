// Reads an external memory: entries of one row and key head by their age, as numbers of type T whatever their stored
// type.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "core/bfloat16.h"
#include "core/float8.h"
#include "kernels/cpu/product.h"
#include "kernels/knn_sizes.h"

namespace quire::cpu {

#if defined(__AVX512F__)
// Returns the 16 bits of a mask as a number. With -fsanitize=thread g++ 12 stores such a mask as 16 bits on the stack
// and reads 32 back; after the empty assembly it does not assume that the upper ones are zero.
inline uint32_t bits_of_mask(uint32_t mask) {
  asm("" : "+r"(mask));
  return mask & 0xffff;
}
#endif

// Calls function(S{}) with the type in which a memory is stored.
template <typename T, typename Function>
void dispatch_stored(const char* op, DType dtype, Function&& function) {
  if (dtype == DType::f32) {
    function(float{});
  } else if (dtype == DType::bf16) {
    function(bfloat16{});
  } else if (dtype == DType::i8) {
    function(int8_t{});
  } else if (dtype == DType::f8) {
    function(float8{});
  } else if constexpr (std::is_same_v<T, double>) {
    function(double{});
  } else {
    fail(ErrorKind::internal, "{}: no memory is stored as {}", op, name_of(dtype));
  }
}

template <typename E, int N>
struct LanesOf {
  typedef E type __attribute__((vector_size(N * sizeof(E))));
};

// Converts to integers of a vector's width from narrower ones. (g++ 12's own conversions take many instructions.)
inline void widen(const int8_t* from, LanesOf<int32_t, 16>::type& to) {
#if defined(__AVX512F__)
  to = (LanesOf<int32_t, 16>::type)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  for (int i = 0; i < 16; ++i) to[i] = int32_t{from[i]};
#endif
}
inline void widen(const uint16_t* from, LanesOf<int32_t, 16>::type& to) {
#if defined(__AVX512F__)
  to = (LanesOf<int32_t, 16>::type)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
  for (int i = 0; i < 16; ++i) to[i] = from[i];
#endif
}
inline void widen(const int8_t* from, LanesOf<int32_t, 8>::type& to) {
  to = (LanesOf<int32_t, 8>::type)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
inline void widen(const uint16_t* from, LanesOf<int32_t, 8>::type& to) {
  to = (LanesOf<int32_t, 8>::type)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline void widen(const int8_t* from, LanesOf<int32_t, 4>::type& to) {
  for (int i = 0; i < 4; ++i) to[i] = from[i];  // NOLINT(bugprone-signed-char-misuse): a number
}
inline void widen(const uint16_t* from, LanesOf<int32_t, 4>::type& to) {
  for (int i = 0; i < 4; ++i) to[i] = from[i];
}

// True when vectors stored as S have a scale each.
template <typename S>
inline constexpr bool kHasScale = std::is_same_v<S, int8_t> || std::is_same_v<S, float8>;

// Converts float8 to f32 for a vector of bytes that were widened.
template <typename Words, typename Floats>
Floats floats_of_float8(Words words) {
  const Words magnitude = words & 0x7f;
  const Words small = magnitude < 8;  // all bits are set where the condition holds
  const Words without_one = small & std::bit_cast<int32_t>(0x1p-6F);
  const Floats size = (Floats)((magnitude << 20) + (120 << 23) - (small << 23)) - (Floats)without_one;
  const Words nan = (magnitude == 0x7f) & 0x7fc00000;
  return (Floats)((Words)size | nan | ((words & 0x80) << 24));
}

// Loads a vector of stored numbers; the caller multiplies by the scale, if there is one.
template <typename T, typename S>
Vector<T> load_stored(const S* from) {
  if constexpr (std::is_same_v<S, T>) {
    return load_vector(from);
  } else if constexpr (std::is_same_v<S, float>) {
    typename LanesOf<float, kLanes<T>>::type values;
    std::memcpy(&values, from, sizeof(values));
    return __builtin_convertvector(values, Vector<T>);
  } else {
    using Words = typename LanesOf<int32_t, kLanes<T>>::type;
    using Floats = typename LanesOf<float, kLanes<T>>::type;
    Words words;
    if constexpr (std::is_same_v<S, bfloat16>) {
      widen(reinterpret_cast<const uint16_t*>(from), words);
      return __builtin_convertvector((Floats)(words << 16), Vector<T>);
    } else if constexpr (std::is_same_v<S, float8>) {
      widen(reinterpret_cast<const int8_t*>(from), words);
      return __builtin_convertvector((floats_of_float8<Words, Floats>(words)), Vector<T>);
    } else {
      widen(from, words);
      return __builtin_convertvector(words, Vector<T>);
    }
  }
}

template <typename T, typename S>
T from_stored(S value) {
  if constexpr (std::is_same_v<S, bfloat16> || std::is_same_v<S, float8>) {
    return static_cast<float>(value);
  } else {
    return static_cast<T>(value);
  }
}

// to [width] = factor times a stored vector.
template <typename T, typename S>
void copy_stored(T* to, const S* from, int64_t width, T factor) {
  int64_t d = 0;
  for (; d + kLanes<T> <= width; d += kLanes<T>) store_vector(to + d, load_stored<T>(from + d) * factor);
  for (; d < width; ++d) to[d] = from_stored<T>(from[d]) * factor;
}

// The keys or values of one row and key head.
template <typename T, typename S>
class StoredVectors {
 public:
  StoredVectors(const char* op, const Tensor& stored, const Tensor& scale, const ops::KnnMemory& memory, int64_t row,
                int64_t kv_head)
      : slots_(stored.dim(1)), width_(stored.dim(3)), stride_(stored.dim(2) * width_), scale_stride_(stored.dim(2)) {
    const int64_t first = (row * slots_ * stored.dim(2)) + kv_head;
    data_ = stored.data<S>() + first * width_;
    if (scale.defined()) scale_ = scale.data<bfloat16>() + first;
    length_ = memory.length.data<int32_t>()[row];
    const int64_t head = memory.head.data<int32_t>()[row];
    QUIRE_CHECK(length_ >= 0 && length_ <= slots_ && head >= 0 && head <= slots_,
                "{}: row {} has {} entries and its next one in slot {} of {}", op, row, length_, head, slots_);
    oldest_ = (head - length_ + slots_) % std::max<int64_t>(slots_, 1);
  }

  int64_t length() const { return length_; }
  int64_t width() const { return width_; }
  int64_t slot(int64_t entry) const { return oldest_ + entry < slots_ ? oldest_ + entry : oldest_ + entry - slots_; }
  const S* at(int64_t slot) const { return data_ + slot * stride_; }
  // Returns the scale of the vector in a slot; 1 when the type has none.
  T scale(int64_t slot) const {
    if constexpr (kHasScale<S>) return from_stored<T>(scale_[slot * scale_stride_]);
    return T{1};
  }

  struct Rows {
    const T* data;
    int64_t stride;
  };
  // Returns entries [first, first + count): the stored ones, or a copy in `room` [count, width].
  Rows rows(int64_t first, int64_t count, T* room) const {
    const int64_t begin = slot(first);
    if constexpr (std::is_same_v<S, T>) {
      if (begin + count <= slots_) return {at(begin), stride_};
    }
    for (int64_t i = 0; i < count; ++i)
      copy_stored(room + i * width_, at(slot(first + i)), width_, scale(slot(first + i)));
    return {room, width_};
  }

  // Returns x times the vectors in as many slots as a vector has lanes: the same sums as in a product of matrices.
  Vector<T> products(const T* x, const int64_t* slots) const {
    constexpr int64_t kWidth = kLanes<T>;
    Vector<T> sum{};
    int64_t d = 0;
    for (; d + kWidth <= width_; d += kWidth) {
      Vector<T> lines[kWidth];
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) {
        lines[r] = load_stored<T>(at(slots[r]) + d);
        if constexpr (kHasScale<S>) lines[r] *= scale(slots[r]);
      }
      transpose_square<T>(lines);
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) {
        const Vector<T> spread = x[d + r] - Vector<T>{};
        sum += spread * lines[r];
      }
    }
    for (; d < width_; ++d) {
      T line[kWidth];
      for (int r = 0; r < kWidth; ++r) line[r] = from_stored<T>(at(slots[r])[d]) * scale(slots[r]);
      const Vector<T> spread = x[d] - Vector<T>{};
      sum += spread * load_vector(line);
    }
    return sum;
  }

  // Prefetches into the second-level cache.
  void prefetch(int64_t slot) const {
    const char* const line = reinterpret_cast<const char*>(at(slot));
    for (int64_t byte = 0; byte < width_ * static_cast<int64_t>(sizeof(S)); byte += 64) {
      __builtin_prefetch(line + byte, 0, 2);
    }
  }

 private:
  int64_t slots_, width_, stride_, scale_stride_;
  const S* data_;
  const bfloat16* scale_ = nullptr;
  int64_t length_, oldest_;
};

}  // namespace quire::cpu
