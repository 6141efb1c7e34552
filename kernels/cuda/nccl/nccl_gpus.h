// Whether every rank has a GPU of its own.
#pragma once

#include <string>

#include "core/ranks/ranks.h"

namespace quire::cuda {

// gpu: the PCI bus id of this rank's. Error(config) on all ranks names two that have the same one.
void require_own_gpus(Ranks& ranks, const std::string& gpu);

}  // namespace quire::cuda
