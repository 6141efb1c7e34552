#include "kernels/cuda/nccl/nccl_operations.h"

namespace quire::cuda {

NcclOperations::~NcclOperations() {
  for (const Operation& operation : unfinished_) spare_.push_back(operation.done);
  for (const cudaEvent_t event : spare_) {
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
  }
}

void NcclOperations::begin() {
  const std::lock_guard lock(mutex_);
  unfinished_.push_back({Clock::now()});
  ++begun_;
}

void NcclOperations::joined() {
  const std::lock_guard lock(mutex_);
  unfinished_.pop_back();
  --begun_;
}

void NcclOperations::queued(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  cudaEvent_t event = nullptr;
  if (spare_.empty()) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  check(cudaEventRecord(event, stream));
  unfinished_.back().done = event;
}

void NcclOperations::order_after_all(cudaStream_t stream) {
  cudaEvent_t last = nullptr;
  {
    const std::lock_guard lock(mutex_);
    look();
    if (!unfinished_.empty()) last = unfinished_.back().done;
  }
  // The event is recorded again only by the rank's thread, which is the caller.
  if (last != nullptr) check(cudaStreamWaitEvent(stream, last));
}

int64_t NcclOperations::begun() const {
  const std::lock_guard lock(mutex_);
  return begun_;
}

int64_t NcclOperations::finished() {
  const std::lock_guard lock(mutex_);
  look();
  return begun_ - static_cast<int64_t>(unfinished_.size());
}

std::optional<NcclOperations::Clock::time_point> NcclOperations::oldest() {
  const std::lock_guard lock(mutex_);
  look();
  if (unfinished_.empty()) return std::nullopt;
  return unfinished_.front().begun;
}

// Operations end one after the other.
void NcclOperations::look() {
  while (!unfinished_.empty() && unfinished_.front().done != nullptr) {
    const cudaError_t status = cudaEventQuery(unfinished_.front().done);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // clears the error, which libraries would take for theirs
      return;
    }
    check(status);
    spare_.push_back(unfinished_.front().done);
    unfinished_.pop_front();
  }
}

}  // namespace quire::cuda
