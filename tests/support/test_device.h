// The device that golden files, mechanisms and whole runs are tested on: the CPU, or with QUIRE_TEST_DEVICE=cuda a GPU.
#pragma once

#include <cstdlib>
#include <string_view>

#include "core/tensor.h"

namespace quire::test {

inline Device test_device() {
  const char* chosen = std::getenv("QUIRE_TEST_DEVICE");
  return chosen != nullptr && chosen == std::string_view("cuda") ? Device{DeviceKind::cuda, 0} : kCpu;
}

inline Tensor zeros(const Shape& shape, DType dtype) {
  return Tensor::zeros(shape, dtype, test_device());
}

}  // namespace quire::test
