#include "kernels/cuda/nccl/nccl_gpus.h"

#include <map>

#include "core/check.h"

namespace quire::cuda {

void require_own_gpus(Ranks& ranks, const std::string& gpu) {
  std::map<std::string, size_t> owners;
  const std::vector<std::string> places = ranks.gather(fmt::format("GPU {} of {}", gpu, ranks.host()));
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto [owner, is_first] = owners.emplace(places[rank], rank);
    if (is_first) continue;
    throw SharedError(
        ErrorKind::config,
        fmt::format("ranks {} and {} have the same {}: every rank needs one of its own. Start no more ranks "
                    "on a host than it has GPUs, and give each one of them with CUDA_VISIBLE_DEVICES",
                    owner->second, rank, places[rank]));
  }
}

}  // namespace quire::cuda
