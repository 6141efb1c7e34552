// Memory of the GPU, and copies between it and the host.
#pragma once

#include <memory>

#include "core/device.h"

namespace quire::cuda {

// Makes the memory of the GPU called `name`, and the streams on the current device.
std::unique_ptr<DeviceBackend> make_memory(const std::string& name);

}  // namespace quire::cuda
