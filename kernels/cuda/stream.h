// The stream of this process, and the check of every result of the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "core/device.h"

namespace quire::cuda {

// Returns the stream on which all kernels of this process run, in order. Memory may therefore be reused as soon as the
// last kernel that uses it has been launched.
cudaStream_t stream();

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw DeviceError(std::string("CUDA: ") + cudaGetErrorString(status));
}

}  // namespace quire::cuda
