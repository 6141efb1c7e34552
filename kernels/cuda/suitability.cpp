#include "kernels/cuda/suitability.h"

namespace quire::cuda {

std::string why_unsuitable(const std::string& name, int major, int minor) {
  if (major >= 8) return "";
  return name + " has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
         "; quire needs 8.0 (Ampere) or newer";
}

}  // namespace quire::cuda
