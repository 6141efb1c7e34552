// Collectives over NCCL between ranks with a GPU each (nccl_collectives.h). A build without nccl.h has them not
// (nccl_missing.cpp).
#pragma once

#include <functional>
#include <memory>

#include "core/ranks/ranks.h"
#include "kernels/cuda/nccl/nccl_place.h"

namespace quire::cuda {

struct NcclConnection {
  std::unique_ptr<Collectives> collectives;
  // Throws when the communicator was ended: what the GPU has computed since means nothing.
  std::function<void()> check;
};

// All ranks call it; what is wrong on one of them is an error of all.
NcclConnection connect_nccl(Ranks& ranks, const NcclPlace& place);

}  // namespace quire::cuda
