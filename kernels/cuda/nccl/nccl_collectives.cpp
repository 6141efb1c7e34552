#include "kernels/cuda/nccl/nccl_collectives.h"

#include <algorithm>

#include "core/check.h"

namespace quire::cuda {

namespace {

ncclDataType_t type_of(const Tensor& values) {
  QUIRE_CHECK(values.device().kind == DeviceKind::cuda, "NCCL: a tensor on {}", name_of(values.device().kind));
  QUIRE_CHECK(values.is_contiguous(), "NCCL: a tensor with gaps");
  QUIRE_CHECK(values.dtype() == DType::f32 || values.dtype() == DType::f64, "NCCL: sums of {}",
              name_of(values.dtype()));
  return values.dtype() == DType::f64 ? ncclFloat64 : ncclFloat32;
}

}  // namespace

struct NcclCollectives::Parts {
  char* base;
  size_t element;  // bytes
  ncclDataType_t type;
  const PartBounds& bounds;
  bool equal = true;

  char* begin(size_t rank) const { return base + static_cast<size_t>(bounds[rank]) * element; }
  size_t count(size_t rank) const { return static_cast<size_t>(bounds[rank + 1] - bounds[rank]); }
};

NcclCollectives::NcclCollectives(const NcclLibrary& library, Ranks& ranks, const NcclPlace& place)
    : rank_(static_cast<size_t>(ranks.rank())),
      size_(static_cast<size_t>(ranks.size())),
      compute_(place.compute),
      description_(fmt::format("NCCL {}, {}", library.version, library.choices)),
      communicator_(library, ranks.control(), place.limits) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  check(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
}

NcclCollectives::~NcclCollectives() {
  const bool ended = communicator_.end();
  static_cast<void>(cudaEventDestroy(ready_));
  // A stream whose operation does not end is not destroyed.
  if (ended) static_cast<void>(cudaStreamDestroy(stream_));
}

void NcclCollectives::begin(const Tensor& values, const std::function<ncclResult_t(ncclComm_t)>& calls) {
  communicator_.check();
  communicator_.watched()->in_use.push_back(values);
  check(cudaEventRecord(ready_, compute_));
  check(cudaStreamWaitEvent(stream_, ready_));
  communicator_.run(stream_, calls);
}

void NcclCollectives::all_reduce(const Tensor& values) {
  const ncclDataType_t type = type_of(values);
  const auto count = static_cast<size_t>(values.numel());
  begin(values, [&, data = values.raw()](ncclComm_t communicator) {
    if (count == 0) return ncclSuccess;
    return communicator_.nccl().all_reduce(data, data, count, type, ncclSum, communicator, stream_);
  });
}

NcclCollectives::Parts NcclCollectives::parts_of(const Tensor& values, const PartBounds& bounds) const {
  const ncclDataType_t type = type_of(values);
  QUIRE_CHECK(bounds.size() == size_ + 1 && bounds.front() >= 0 && std::is_sorted(bounds.begin(), bounds.end()) &&
                  bounds.back() <= values.numel(),
              "NCCL: bounds {} for {} ranks and {} elements", fmt::join(bounds, " "), size_, values.numel());
  Parts parts{static_cast<char*>(values.raw()), size_of(values.dtype()), type, bounds};
  for (size_t rank = 1; rank < size_; ++rank) parts.equal = parts.equal && parts.count(rank) == parts.count(0);
  return parts;
}

void NcclCollectives::reduce_scatter(const Tensor& values, const PartBounds& bounds) {
  const Parts parts = parts_of(values, bounds);
  begin(values, [&](ncclComm_t communicator) {
    const NcclLibrary& nccl = communicator_.nccl();
    if (parts.equal && parts.count(0) > 0) {
      return nccl.reduce_scatter(parts.begin(0), parts.begin(rank_), parts.count(0), parts.type, ncclSum, communicator,
                                 stream_);
    }
    ncclResult_t result = ncclSuccess;
    for (size_t rank = 0; rank < size_ && (result == ncclSuccess || result == ncclInProgress); ++rank) {
      if (parts.count(rank) == 0) continue;
      result = nccl.reduce(parts.begin(rank), parts.begin(rank), parts.count(rank), parts.type, ncclSum,
                           static_cast<int>(rank), communicator, stream_);
    }
    return result;
  });
}

void NcclCollectives::all_gather(const Tensor& values, const PartBounds& bounds) {
  const Parts parts = parts_of(values, bounds);
  begin(values, [&](ncclComm_t communicator) {
    const NcclLibrary& nccl = communicator_.nccl();
    if (parts.equal && parts.count(0) > 0) {
      return nccl.all_gather(parts.begin(rank_), parts.begin(0), parts.count(0), parts.type, communicator, stream_);
    }
    ncclResult_t result = ncclSuccess;
    for (size_t rank = 0; rank < size_ && (result == ncclSuccess || result == ncclInProgress); ++rank) {
      if (parts.count(rank) == 0) continue;
      result = nccl.broadcast(parts.begin(rank), parts.begin(rank), parts.count(rank), parts.type,
                              static_cast<int>(rank), communicator, stream_);
    }
    return result;
  });
}

void NcclCollectives::wait() {
  communicator_.check();
  communicator_.operations().order_after_all(compute_);
  communicator_.watched()->in_use.clear();
}

int64_t NcclCollectives::finished() const {
  return communicator_.operations().finished();
}

}  // namespace quire::cuda
