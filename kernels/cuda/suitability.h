// Which GPUs these kernels run on.
#pragma once

#include <string>

namespace quire::cuda {

// Empty, or why not: "Tesla T4 has compute capability 7.5; quire needs 8.0 (Ampere) or newer".
std::string why_unsuitable(const std::string& name, int major, int minor);

}  // namespace quire::cuda
