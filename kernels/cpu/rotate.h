// Rotates one head by rotary angles.
#pragma once

#include "kernels/cpu/common.h"

namespace quire::cpu {

// Writes y = x [size] rotated by angles [2, pairs] (cosines, then sines), or rotated back with `inverse`. y may be x.
template <typename T>
void rotate(T* y, const T* x, const T* angles, int64_t pairs, int64_t size, bool inverse, bool interleaved) {
  const T* cosine = angles;
  const T* sine = angles + pairs;
  const T sign = inverse ? T{-1} : T{1};
  if (interleaved) {
    for (int64_t i = 0; i < pairs; ++i) {
      const T a = x[2 * i];
      const T b = x[2 * i + 1];
      const T s = sign * sine[i];
      y[2 * i] = a * cosine[i] - b * s;
      y[2 * i + 1] = a * s + b * cosine[i];
    }
    if (y != x) std::copy(x + 2 * pairs, x + size, y + 2 * pairs);
    return;
  }
  for (int64_t i = 0; i < pairs; ++i) {
    const T a = x[i];
    const T b = x[i + pairs];
    const T s = sign * sine[i];
    y[i] = a * cosine[i] - b * s;
    y[i + pairs] = a * s + b * cosine[i];
  }
  if (y != x) std::copy(x + 2 * pairs, x + size, y + 2 * pairs);
}

}  // namespace quire::cpu
