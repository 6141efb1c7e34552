// bfloat16 storage: the upper half of an f32, rounded to nearest even. Arithmetic happens in f32.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace quire {

struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  constexpr explicit bfloat16(float value) {
    const uint32_t x = std::bit_cast<uint32_t>(value);
    const bool is_nan = (x & 0x7fffffffU) > 0x7f800000U;
    // A NaN keeps a mantissa bit set, because rounding could carry into the exponent and turn it into infinity.
    bits = is_nan ? static_cast<uint16_t>((x >> 16) | 0x40U)
                  : static_cast<uint16_t>((x + 0x7fffU + ((x >> 16) & 1U)) >> 16);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <>
constexpr DType dtype_of<bfloat16>() {
  return DType::bf16;
}

}  // namespace quire
