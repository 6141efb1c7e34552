#include "kernels/cuda/suitability.h"

namespace quire::cuda {

namespace {

std::string with_capability(const std::string& name, int major, int minor) {
  return name + " has compute capability " + std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

std::string why_unsuitable(const std::string& name, int major, int minor) {
  if (major >= 8) return "";
  return with_capability(name, major, minor) + "; quire needs 8.0 (Ampere) or newer";
}

std::string no_code(const std::string& name, int major, int minor) {
  return with_capability(name, major, minor) +
         ", for which this build has no code: configure it with -DQUIRE_CUDA_CHIPS=all and build again";
}

std::string driver_too_old(int driver, int needed) {
  const auto version = [](int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  };
  return "the NVIDIA driver is for CUDA " + version(driver) + " and older, and this program needs one for CUDA " +
         version(needed);
}

}  // namespace quire::cuda
