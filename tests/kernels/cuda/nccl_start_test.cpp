// Tests what ranks must have in common before they call NCCL.
#include <gtest/gtest.h>

#include "kernels/cuda/nccl/nccl_library.h"
#include "tests/kernels/cuda/nccl_ranks.h"

namespace quire::test {
namespace {

void expect_refused(const std::function<void(cuda::NcclPlace&)>& change, const std::string& message) {
  try {
    run_in_process(2, [&](Ranks& ranks) {
      cuda::NcclPlace place = nccl_place(ranks, nullptr);
      change(place);
      connect_nccl(ranks, place);
    });
    FAIL() << "connected, instead of: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("rank 0 on"), std::string::npos) << "all have it: " << error.what();
  }
}

TEST(NcclStart, NamesWhatIsMissing) {
  expect_refused(
      [](cuda::NcclPlace& place) { place.library = "libnccl_of_nobody.so"; },
      "libnccl_of_nobody.so: cannot open shared object file: No such file or directory; ranks on several GPUs "
      "need NCCL 2.27.3 or newer: install");
  expect_refused([](cuda::NcclPlace& place) { place.library = "libm.so.6"; }, "libm.so.6 has no ncclGetVersion");
}

TEST(NcclStart, RefusesVersionsThatHang) {
  const Injection injection("version=22602");
  expect_refused([](cuda::NcclPlace&) {}, "NCCL 2.26.2 is refused: non-blocking communicators of 2.26 hang");
}

TEST(NcclStart, KnowsVersions) {
  for (const int bad : {2708, 21403, 21903, 22501, 22602, 22606, 22902}) {
    EXPECT_NE(cuda::why_nccl_refused(bad), "") << bad;
  }
  for (const int good : {21904, 22403, 22703, 22809, 22903, 23007}) EXPECT_EQ(cuda::why_nccl_refused(good), "") << good;
  EXPECT_EQ(cuda::nccl_version_text(2708), "2.7.8");
  EXPECT_EQ(cuda::nccl_version_text(22809), "2.28.9");
}

TEST(NcclStart, EveryRankNeedsAGpuOfItsOwn) {
  expect_refused([](cuda::NcclPlace& place) { place.gpu = "0000:4A:00.0"; },
                 "ranks 0 and 1 have the same GPU 0000:4A:00.0 of localhost: every rank needs one of its own");
  const Injection injection("version=22809");
  InProcessOptions two_hosts;
  two_hosts.hosts = {"node1", "node2"};
  run_in_process(
      2,
      [](Ranks& ranks) {
        cuda::NcclPlace place = nccl_place(ranks, nullptr);
        place.gpu = "0000:4A:00.0";
        const cuda::NcclConnection connection = connect_nccl(ranks, place);
        EXPECT_EQ(connection.collectives->description(), "NCCL 2.28.9, algorithm Ring, protocol Simple");
      },
      two_hosts);
}

TEST(NcclStart, PinsAlgorithmAndProtocolUnlessTheyAreGiven) {
  ASSERT_EQ(::setenv("NCCL_ALGO", "Tree", 1), 0);
  on_nccl_ranks(2, [](NcclRank& rank) {
    const std::string text = rank.collectives.description();
    EXPECT_TRUE(text.ends_with(", algorithm Tree, protocol Simple")) << text;
  });
  ::unsetenv("NCCL_ALGO");
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "Simple");
}

}  // namespace
}  // namespace quire::test
