// Tests fork() while other threads work.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/files/hdf5_trial.h"
#include "core/tensor.h"
#include "tests/support/address_sanitizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

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

// A child that waits for ever for what only this process could give it is begun anew.
TEST(ChildrenThatTryFiles, AreBegunAgainWhenTheyDoNotEnd) {
  using std::chrono::milliseconds;
  const test::TemporaryDirectory folder;
  const std::filesystem::path mark = folder / "mark";
  const int seconds = 1;  // of processor time, the most that the child may need
  const auto waits_once = [&] {
    if (!std::filesystem::create_directory(mark)) return;
    for (;;) ::pause();
  };
  EXPECT_NO_THROW(try_in_child("c.h5", ErrorKind::data, seconds, waits_once, milliseconds(300)));
  EXPECT_TRUE(std::filesystem::exists(mark));
  EXPECT_ERROR(try_in_child(
                   "c.h5", ErrorKind::data, seconds,
                   [] {
                     for (;;) ::pause();
                   },
                   milliseconds(50)),
               ErrorKind::data, "c.h5: a process that reads its structure does not end: 3 attempts");
}

}  // namespace
}  // namespace quire
