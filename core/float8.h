// Eight-bit floating-point storage (E4M3: a sign, four bits of exponent, three of mantissa): finite up to 448, without
// infinities; the two patterns with all bits but the sign set are NaN. Values are rounded to nearest even; larger ones
// become 448.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace quire {

struct float8 {
  static constexpr double kLargest = 448;

  uint8_t bits = 0;

  float8() = default;
  constexpr explicit float8(double value) {
    const auto x = std::bit_cast<uint64_t>(value);
    const auto sign = static_cast<uint8_t>(x >> 56 & 0x80U);
    const double size = std::bit_cast<double>(x & ~(uint64_t{1} << 63));
    uint64_t magnitude = 0x7f;
    if (size < 0x1p-6) {
      // Rounds to multiples of 2^-9, the spacing of the numbers below the first exponent: adding 2^43 leaves exactly
      // these bits.
      magnitude = static_cast<uint64_t>((size + 0x1p43 - 0x1p43) * 0x1p9);
    } else if (size == size) {
      // Adds half a unit in the last kept place, less one where the bit before it is even; the exponent then counts
      // from 2^-7.
      const uint64_t rounded = (x & ~(uint64_t{1} << 63)) + ((uint64_t{1} << 48) - 1) + (x >> 49 & 1U);
      magnitude = (rounded >> 49) - (uint64_t{1023 - 7} << 3);
      if (magnitude > 0x7e) magnitude = 0x7e;
    }
    bits = static_cast<uint8_t>(sign | magnitude);
  }
  constexpr explicit operator float() const {
    const uint32_t magnitude = bits & 0x7fU;
    const uint32_t sign = static_cast<uint32_t>(bits & 0x80U) << 24;
    if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000U);
    // Below the first exponent the mantissa has no implicit leading one.
    const float size = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9F
                                     : std::bit_cast<float>((magnitude << 20) + (uint32_t{127 - 7} << 23));
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(size));
  }
};

template <>
constexpr DType dtype_of<float8>() {
  return DType::f8;
}

}  // namespace quire
