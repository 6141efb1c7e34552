// The angles of rotary positions without scaling, for tests that make tables by hand.
#pragma once

#include <cmath>
#include <vector>

#include "core/tensor.h"

namespace quire::test {

// f64 [pairs]: base^(-i / pairs).
inline Tensor rotary_frequencies(double base, int64_t pairs, Device device = kCpu) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i) {
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  return Tensor::from(frequencies, {pairs}, device);
}

}  // namespace quire::test
