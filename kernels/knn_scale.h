// The scale of vectors that are stored as i8 or f8, computed in the same way on every device.
#pragma once

#include <type_traits>

#include "core/bfloat16.h"
#include "core/float8.h"

namespace quire {

// The largest number that a stored type represents.
template <typename S>
inline constexpr double kLargestStored = std::is_same_v<S, float8> ? float8::kLargest : 127;

// Returns the smallest bf16 scale >= 0 with max_stored * scale >= largest; NaN when largest is not finite.
constexpr bfloat16 scale_reaching(double largest, double max_stored) {
  if (!(largest - largest == 0)) return std::bit_cast<bfloat16>(static_cast<uint16_t>(0x7fc0));
  bfloat16 scale(static_cast<float>(largest / max_stored));
  // The rounded quotient is the result or a neighbour of it; bit patterns of positive numbers are ordered as the
  // numbers.
  while (max_stored * static_cast<double>(static_cast<float>(scale)) < largest) ++scale.bits;
  while (scale.bits > 0) {
    const auto below = std::bit_cast<bfloat16>(static_cast<uint16_t>(scale.bits - 1));
    if (max_stored * static_cast<double>(static_cast<float>(below)) < largest) break;
    scale = below;
  }
  return scale;
}

}  // namespace quire
