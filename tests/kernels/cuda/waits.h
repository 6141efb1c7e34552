// Counts how often the host has waited for the substitute of the GPU.
#pragma once

#include <cstdint>

namespace quire::test {

int64_t waits_for_device();

}  // namespace quire::test
