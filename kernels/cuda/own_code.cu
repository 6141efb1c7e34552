#include "kernels/cuda/own_code.h"

#include "kernels/cuda/stream.h"

namespace quire::cuda {

#ifdef QUIRE_WITHOUT_GPU_CODE

bool has_code_for_gpu() {
  return false;
}

#else

namespace {

__global__ void nothing_kernel() {}

}  // namespace

bool has_code_for_gpu() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, nothing_kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();  // clears the error: the caller reports it
    return false;
  }
  check(status);
  return true;
}

#endif

}  // namespace quire::cuda
