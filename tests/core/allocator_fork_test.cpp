// A process that is copied while other threads allocate.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/tensor.h"
#include "tests/support/address_sanitizer.h"

namespace quire {
namespace {

TEST(AllocatorFork, AChildAllocatesWhateverOtherThreadsWereDoing) {
  if (test::under_address_sanitizer()) GTEST_SKIP() << "its own allocator is not made for this";
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) Tensor::empty({64}, DType::f32);
  });
  int stuck = 0;
  for (int round = 0; round < 200; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(2);
      Tensor::empty({64}, DType::f32);
      ::_exit(0);
    }
    ASSERT_GT(child, 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    stuck += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
    if (stuck > 0) break;
  }
  over = true;
  other.join();
  EXPECT_EQ(stuck, 0);
}

}  // namespace
}  // namespace quire
