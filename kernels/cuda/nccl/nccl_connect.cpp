#include "kernels/cuda/nccl/nccl_connect.h"

#include "kernels/cuda/nccl/nccl_collectives.h"
#include "kernels/cuda/nccl/nccl_gpus.h"

namespace quire::cuda {

namespace {

std::string id_of_root(const NcclLibrary& nccl, Ranks& ranks) {
  ncclUniqueId id{};
  ranks.on_root([&] {
    const ncclResult_t result = nccl.get_unique_id(&id);
    if (result == ncclSuccess) return;
    throw Error(ErrorKind::communication,
                std::string("NCCL: ") + nccl.get_error_string(result) + ": " + nccl.get_last_error(nullptr));
  });
  return ranks.broadcast_from_root(packed<char>(id.internal));
}

}  // namespace

NcclConnection connect_nccl(Ranks& ranks, const NcclPlace& place) {
  const Ranks::Operation operation(ranks, "connecting the GPUs");
  NcclLibrary nccl;
  ranks.on_all([&] { nccl = load_nccl(place.library); });
  ranks.agree("version of NCCL", nccl.version, "install the same one on all hosts");
  ranks.agree("NCCL_ALGO and NCCL_PROTO", nccl.choices, "set them alike for all ranks, or not at all");
  require_own_gpus(ranks, place.gpu);
  ncclUniqueId id{};
  id_of_root(nccl, ranks).copy(id.internal, sizeof(id.internal));

  auto collectives = std::make_unique<NcclCollectives>(nccl, ranks, place);
  collectives->communicator().join(id, ranks.rank(), ranks.size());
  const std::weak_ptr<NcclWatched> watched = collectives->communicator().watched();
  return {std::move(collectives), [watched] {
            if (const auto alive = watched.lock()) alive->failure.check();
          }};
}

}  // namespace quire::cuda
