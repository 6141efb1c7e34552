// The library in NCCL's place between processes.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "kernels/cuda/nccl/nccl_collectives.h"
#include "tests/kernels/cuda/nccl_ranks.h"
#include "tests/support/lone_control.h"
#include "tests/support/temporary_directory.h"

namespace quire::test {
namespace {

// Returns the sums with which the rank ends.
std::vector<float> sum(int rank, const ncclUniqueId& id, const cuda::NcclLibrary& nccl) {
  Ranks ranks(std::make_unique<LoneControl>(rank, 2), nullptr);
  cuda::NcclCollectives collectives(nccl, ranks, nccl_place(ranks, nullptr));
  collectives.communicator().join(id, rank, 2);
  const Tensor values = on_gpu(std::vector<float>(9000, static_cast<float>(rank + 1)));
  collectives.all_reduce(values);
  collectives.wait();
  return values.to_vector<float>();
}

const std::vector<float> kExpected(9000, 3.0F);
constexpr const char* kIdFile = "QUIRE_TEST_NCCL_ID";

// The second process, which is begun by the test below.
TEST(NcclProcesses, DISABLED_TheOtherRank) {
  const char* path = std::getenv(kIdFile);
  ASSERT_NE(path, nullptr);
  ncclUniqueId id{};
  std::ifstream(path, std::ios::binary).read(id.internal, sizeof(id.internal));
  EXPECT_EQ(sum(1, id, cuda::load_nccl(kStandIn)), kExpected);
}

// A program of its own: a copy of this process would inherit locks that threads of other tests hold.
TEST(NcclProcesses, SumWhatEachHas) {
  const cuda::NcclLibrary nccl = cuda::load_nccl(kStandIn);
  ncclUniqueId id{};
  ASSERT_EQ(nccl.get_unique_id(&id), ncclSuccess);
  const TemporaryDirectory folder;
  std::ofstream(folder / "id", std::ios::binary).write(id.internal, sizeof(id.internal));
  ::setenv(kIdFile, (folder / "id").c_str(), 1);
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string filter = "--gtest_filter=*.DISABLED_TheOtherRank";
  std::string disabled = "--gtest_also_run_disabled_tests";
  char* const arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};
  // Not a shard of its own.
  for (const char* name : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_SHARD_STATUS_FILE"}) ::unsetenv(name);
  pid_t other = -1;
  ASSERT_EQ(::posix_spawn(&other, program.c_str(), nullptr, nullptr, arguments, environ), 0);
  EXPECT_EQ(sum(0, id, nccl), kExpected);
  int status = -1;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  ::unsetenv(kIdFile);
}

}  // namespace
}  // namespace quire::test
