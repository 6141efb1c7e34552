// The library in NCCL's place between processes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/nccl_collectives.h"
#include "tests/kernels/cuda/nccl_ranks.h"
#include "tests/support/lone_control.h"

namespace quire::test {
namespace {

// What the rank ends with.
std::vector<float> sum(int rank, const ncclUniqueId& id, const cuda::NcclLibrary& nccl) {
  Ranks ranks(std::make_unique<LoneControl>(rank, 2), nullptr);
  cuda::NcclCollectives collectives(nccl, ranks, nccl_place(ranks, nullptr));
  collectives.communicator().join(id, rank, 2);
  const Tensor values = on_gpu(std::vector<float>(9000, static_cast<float>(rank + 1)));
  collectives.all_reduce(values);
  collectives.wait();
  return values.to_vector<float>();
}

TEST(NcclProcesses, SumWhatEachHas) {
  const cuda::NcclLibrary nccl = cuda::load_nccl(kStandIn);
  ncclUniqueId id{};
  ASSERT_EQ(nccl.get_unique_id(&id), ncclSuccess);
  const std::vector<float> wanted(9000, 3.0F);
  const pid_t other = ::fork();
  if (other == 0) ::_exit(sum(1, id, nccl) == wanted ? 0 : 1);
  EXPECT_EQ(sum(0, id, nccl), wanted);
  int status = -1;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace quire::test
