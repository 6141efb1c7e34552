// Decides on which GPUs these kernels run.
#pragma once

#include <string>

namespace quire::cuda {

// Returns an empty text, or why the GPU cannot be used: "Tesla T4 has compute capability 7.5; quire needs 8.0 (Ampere)
// or newer".
std::string why_unsuitable(const std::string& name, int major, int minor);

// Returns the message for a GPU of a capability for which the library has no code.
std::string no_code(const std::string& name, int major, int minor);

// Returns the message for a driver of CUDA version `driver` that is older than `needed`: 12040 is 12.4.
std::string driver_too_old(int driver, int needed);

}  // namespace quire::cuda
