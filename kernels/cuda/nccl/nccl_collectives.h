// Collectives over NCCL, in place, on a stream of their own. NCCL has no operation for parts of unequal sizes: they are
// sums to one rank each, or copies from one rank each, in one group.
#pragma once

#include "core/ranks/collectives.h"
#include "kernels/cuda/nccl/nccl_communicator.h"

namespace quire::cuda {

class NcclCollectives : public Collectives {
 public:
  // The communicator is joined later.
  NcclCollectives(const NcclLibrary& library, Ranks& ranks, const NcclPlace& place);
  ~NcclCollectives() override;
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  NcclCommunicator& communicator() { return communicator_; }

  void all_reduce(const Tensor& values) override;
  void reduce_scatter(const Tensor& values, const PartBounds& bounds) override;
  void all_gather(const Tensor& values, const PartBounds& bounds) override;
  void wait() override;
  int64_t finished() const override;
  std::string description() const override { return description_; }

 private:
  struct Parts;
  Parts parts_of(const Tensor& values, const PartBounds& bounds) const;
  void begin(const Tensor& values, const std::function<ncclResult_t(ncclComm_t)>& calls);

  const size_t rank_;
  const size_t size_;
  const cudaStream_t compute_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;
  std::string description_;
  mutable NcclCommunicator communicator_;
};

}  // namespace quire::cuda
