// Which GPUs these kernels run on.
#pragma once

#include <string>

namespace quire::cuda {

// Empty, or why not: "Tesla T4 has compute capability 7.5; quire needs 8.0 (Ampere) or newer".
std::string why_unsuitable(const std::string& name, int major, int minor);

// The line for a GPU of that capability for which the library has no code.
std::string no_code(const std::string& name, int major, int minor);

// The line for a driver of CUDA version `driver`, older than `needed`: 12040 is 12.4.
std::string driver_too_old(int driver, int needed);

}  // namespace quire::cuda
