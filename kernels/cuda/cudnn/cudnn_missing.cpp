// Replaces cudnn_plans.cpp in a build without cuDNN's headers.
#include "core/check.h"
#include "kernels/cuda/cudnn/cudnn_plans.h"

namespace quire::cuda {

std::unique_ptr<CudnnPlans> make_cudnn_plans(const CudnnShape&) {
  throw Error(
      ErrorKind::config,
      "this build has no cuDNN: install cuDNN's headers and its C++ headers (pip install nvidia-cudnn-frontend), "
      "build again with -DQUIRE_CUDNN_FRONTEND=FOLDER, or use model.attention.softmax.implementation: own");
}

std::string cudnn_library_version() {
  return "";
}

}  // namespace quire::cuda
