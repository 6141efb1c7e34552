#include "tests/support/cuda_device.h"

#include "kernels/backend.h"

namespace quire::test {

std::string missing_cuda_device() {
  return load_cuda().gpu.empty() ? "no GPU can be used: " + load_cuda().reason : "";
}

}  // namespace quire::test
