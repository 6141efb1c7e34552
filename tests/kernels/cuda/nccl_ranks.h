// Ranks that are threads, each with a stream to compute on and collectives over the library in NCCL's place
// (tests/support/nccl_stand_in).
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/ranks/in_process.h"
#include "core/tensor.h"
#include "kernels/cuda/nccl/nccl_connect.h"

namespace quire::test {

inline constexpr const char* kStandIn = QUIRE_BINARY_DIR "/nccl_stand_in/libnccl.so.2";

// Injects a fault (injection.h) while this object lives.
class Injection {
 public:
  explicit Injection(const std::string& list) { ::setenv("QUIRE_NCCL_STAND_IN", list.c_str(), 1); }
  ~Injection() { ::unsetenv("QUIRE_NCCL_STAND_IN"); }
  Injection(const Injection&) = delete;
  Injection& operator=(const Injection&) = delete;
};

class ComputeStream {
 public:
  ComputeStream() { cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~ComputeStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  ComputeStream(const ComputeStream&) = delete;
  ComputeStream& operator=(const ComputeStream&) = delete;

  cudaStream_t get() const { return stream_; }
  void run(std::function<void()> work) const {
    const auto call = [](void* given) {
      const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(given));
      (*mine)();
    };
    cuda::check(cudaLaunchHostFunc(stream_, call, new std::function<void()>(std::move(work))));
  }
  void synchronize() const { cuda::check(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

inline cuda::NcclPlace nccl_place(const Ranks& ranks, cudaStream_t compute) {
  cuda::NcclPlace place{.gpu = "0000:0" + std::to_string(ranks.rank()) + ":00.0", .compute = compute};
  place.library = kStandIn;
  place.limits.look = std::chrono::milliseconds(2);
  return place;
}

struct NcclRank {
  Ranks& ranks;
  const ComputeStream& compute;
  Collectives& collectives;
};
// Calls work on `size` ranks that have been connected.
inline void on_nccl_ranks(int size, const std::function<void(NcclRank&)>& work, const cuda::NcclLimits& limits = {},
                          const InProcessOptions& options = {}) {
  run_in_process(
      size,
      [&](Ranks& ranks) {
        const ComputeStream compute;
        cuda::NcclPlace place = nccl_place(ranks, compute.get());
        place.limits = limits;
        place.limits.look = std::chrono::milliseconds(2);
        const cuda::NcclConnection connection = connect_nccl(ranks, place);
        ranks.barrier();  // a rank that fails finds none that still joins
        NcclRank rank{ranks, compute, *connection.collectives};
        work(rank);
      },
      options);
}

template <typename T>
Tensor on_gpu(const std::vector<T>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}, {DeviceKind::cuda, 0});
}

}  // namespace quire::test
