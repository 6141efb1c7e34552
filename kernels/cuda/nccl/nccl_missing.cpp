// Replaces nccl_connect.cpp in a build without nccl.h.
#include "kernels/cuda/nccl/nccl_connect.h"

namespace quire::cuda {

NcclConnection connect_nccl(Ranks&, const NcclPlace&) {
  throw Error(
      ErrorKind::config,
      "this build has no NCCL, which several ranks on GPUs need: install NVIDIA's package libnccl-dev and build "
      "again, or use run.device=cpu");
}

}  // namespace quire::cuda
