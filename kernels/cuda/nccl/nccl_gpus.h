// Checks that every rank has a GPU of its own.
#pragma once

#include <string>

#include "core/ranks/ranks.h"

namespace quire::cuda {

// Throws Error(config) on all ranks, with two ranks that share a GPU. `gpu` is the PCI bus id of this rank's.
void require_own_gpus(Ranks& ranks, const std::string& gpu);

}  // namespace quire::cuda
