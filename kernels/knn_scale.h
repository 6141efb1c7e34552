// Scales of vectors that are stored as i8, the same on every device.
#pragma once

#include "core/bfloat16.h"

namespace quire {

// The least bf16 number whose 127-fold reaches `largest`, at least 0; NaN when that is not finite.
constexpr bfloat16 scale_reaching(double largest) {
  if (!(largest - largest == 0)) return std::bit_cast<bfloat16>(static_cast<uint16_t>(0x7fc0));
  bfloat16 scale(static_cast<float>(largest / 127));
  // The nearest one is it, or the one next to it: bit patterns of positive numbers are in their order.
  while (127.0 * static_cast<double>(static_cast<float>(scale)) < largest) ++scale.bits;
  while (scale.bits > 0) {
    const auto below = std::bit_cast<bfloat16>(static_cast<uint16_t>(scale.bits - 1));
    if (127.0 * static_cast<double>(static_cast<float>(below)) < largest) break;
    scale = below;
  }
  return scale;
}

}  // namespace quire
