// Collectives over NCCL between ranks with a GPU each (nccl_collectives.h). A build without nccl.h has none
// (nccl_missing.cpp).
#pragma once

#include <functional>
#include <memory>

#include "core/ranks/ranks.h"
#include "kernels/cuda/nccl/nccl_place.h"

namespace quire::cuda {

struct NcclConnection {
  std::unique_ptr<Collectives> collectives;
  // Throws when the communicator was ended; results computed since then are meaningless.
  std::function<void()> check;
};

// Connects the ranks. All of them call it; an error of one is an error of all.
NcclConnection connect_nccl(Ranks& ranks, const NcclPlace& place);

}  // namespace quire::cuda
