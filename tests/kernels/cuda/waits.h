// How often the host has waited for what stands in for the GPU.
#pragma once

#include <cstdint>

namespace quire::test {

int64_t waits_for_device();

}  // namespace quire::test
