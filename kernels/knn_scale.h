// Vectors that are stored as i8 or f8 with a scale, the same on every device.
#pragma once

#include <type_traits>

#include "core/bfloat16.h"
#include "core/float8.h"

namespace quire {

// The largest number of a type.
template <typename S>
inline constexpr double kLargestStored = std::is_same_v<S, float8> ? float8::kLargest : 127;

// The least bf16 number whose `most`-fold reaches `largest`, at least 0; NaN when that is not finite.
constexpr bfloat16 scale_reaching(double largest, double most) {
  if (!(largest - largest == 0)) return std::bit_cast<bfloat16>(static_cast<uint16_t>(0x7fc0));
  bfloat16 scale(static_cast<float>(largest / most));
  // The nearest one is it, or the one next to it: bit patterns of positive numbers are in their order.
  while (most * static_cast<double>(static_cast<float>(scale)) < largest) ++scale.bits;
  while (scale.bits > 0) {
    const auto below = std::bit_cast<bfloat16>(static_cast<uint16_t>(scale.bits - 1));
    if (most * static_cast<double>(static_cast<float>(below)) < largest) break;
    scale = below;
  }
  return scale;
}

}  // namespace quire
