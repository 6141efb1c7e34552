// Defines the function that is called when the library has been loaded: it looks for a GPU and binds the kernels.
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/cuda/bind.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/own_code.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/suitability.h"
#include "kernels/op.h"

namespace {

// Returns the name of the first GPU that is visible. Throws DeviceError with the reason when none can be used.
std::string find_gpu() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    int needed = 0;
    quire::cuda::check(cudaDriverGetVersion(&driver));
    quire::cuda::check(cudaRuntimeGetVersion(&needed));
    throw quire::DeviceError(quire::cuda::driver_too_old(driver, needed));
  }
  if (status != cudaSuccess) throw quire::DeviceError(cudaGetErrorString(status));
  if (count == 0) throw quire::DeviceError("no GPU is visible");
  cudaDeviceProp properties{};
  quire::cuda::check(cudaGetDeviceProperties(&properties, 0));
  const std::string why = quire::cuda::why_unsuitable(properties.name, properties.major, properties.minor);
  if (!why.empty()) throw quire::DeviceError(why);
  quire::cuda::check(cudaSetDevice(0));
  if (!quire::cuda::has_code_for_gpu()) {
    throw quire::DeviceError(quire::cuda::no_code(properties.name, properties.major, properties.minor));
  }
  return properties.name;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* quire_register_backend(const char* build_id,
                                                                                     std::string* reason) {
  if (std::strcmp(build_id, QUIRE_BUILD_ID) != 0) return nullptr;
  static std::string name;
  try {
    name = find_gpu();
    quire::register_device_backend(quire::DeviceKind::cuda, quire::cuda::make_memory(name));
    quire::cuda::bind_all();
    quire::cuda::answer_for_cudnn();
  } catch (const quire::DeviceError& error) {
    *reason = error.what();
    return nullptr;
  }
  const char* checks = std::getenv("QUIRE_CUDA_CHECK");
  quire::OpBase::set_checking(checks != nullptr && std::strcmp(checks, "1") == 0);
  return name.c_str();
}
