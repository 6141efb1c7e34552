#include "kernels/cuda/warpgroup.h"

#include <cstdlib>
#include <string>

#include "core/error.h"

namespace quire::cuda {

namespace {

bool are_wanted() {
  const char* const given = std::getenv("QUIRE_CUDA_WARPGROUPS");
  const std::string wanted = given == nullptr ? "1" : given;
  if (wanted != "0" && wanted != "1") {
    throw Error(ErrorKind::config, "QUIRE_CUDA_WARPGROUPS is '" + wanted + "': set it to 0 or 1");
  }
  return wanted == "1";
}

}  // namespace

void require_known_environment() {
  are_wanted();
}

bool multiplies_by_warpgroups() {
  if (QUIRE_HAS_SM90A == 0 || !are_wanted()) return false;
  int device = 0;
  int major = 0;
  int minor = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

}  // namespace quire::cuda
