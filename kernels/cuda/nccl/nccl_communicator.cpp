#include "kernels/cuda/nccl/nccl_communicator.h"

#include <algorithm>

#include "core/background_thread.h"
#include "core/log.h"

namespace quire::cuda {

NcclCommunicator::NcclCommunicator(const NcclLibrary& library, Control& control, const NcclLimits& limits)
    : watched_(std::make_shared<NcclWatched>(library, control, limits)),
      thread_(background_thread([watched = watched_] { watched->watch(); })),
      exceptions_(std::uncaught_exceptions()) {}

NcclCommunicator::~NcclCommunicator() {
  end();
}

bool NcclCommunicator::end() {
  if (!thread_.joinable()) return true;
  // A rank with an error does not join the operations in which the others wait.
  if (watched_->leave(std::uncaught_exceptions() <= exceptions_)) {
    thread_.join();
    return true;
  }
  log_warn("NCCL does not end its communicator; it is left as it is");
  thread_.detach();
  return false;
}

void NcclCommunicator::join(const ncclUniqueId& id, int rank, int size) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  operations().begin();
  await(watched_->call(
      [&](ncclComm_t& communicator) { return nccl().init_rank(&communicator, size, id, rank, &config); }));
  operations().joined();
}

void NcclCommunicator::run(cudaStream_t stream, const std::function<ncclResult_t(ncclComm_t)>& calls) {
  operations().begin();
  await(watched_->call([&](ncclComm_t& communicator) {
    const ncclResult_t begun = nccl().group_start();
    if (begun != ncclSuccess) return begun;
    const ncclResult_t given = calls(communicator);
    const ncclResult_t ended = nccl().group_end();  // also after an error: the thread is in the group
    return given == ncclSuccess || given == ncclInProgress ? ended : given;
  }));
  // An event of the stream would come too early before NCCL has queued all calls.
  operations().queued(stream);
}

void NcclCommunicator::await(ncclResult_t state) {
  auto pause = std::chrono::microseconds(5);
  while (state == ncclInProgress) {
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(500));
    state = watched_->call([&](ncclComm_t& communicator) {
      ncclResult_t now = ncclSuccess;
      const ncclResult_t result = nccl().get_async_error(communicator, &now);
      return result == ncclSuccess ? now : result;
    });
  }
}

}  // namespace quire::cuda
