// Builds cuDNN's plans for the GPU of this process.
#include "kernels/cuda/cudnn/cudnn_plans.h"
#include "kernels/cuda/stream.h"

namespace quire::cuda {

std::unique_ptr<CudnnPlans> make_cudnn_plans(const CudnnShape& shape) {
  int gpu = 0;
  int major = 0;
  int minor = 0;
  check(cudaGetDevice(&gpu));
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu));
  return build_cudnn_plans(shape, {.chip = 10 * major + minor, .stream = stream()});
}

}  // namespace quire::cuda
