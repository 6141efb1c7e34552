// The content of a checkpoint folder after a process was killed or its disk filled up.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "core/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/trainers/checkpoint_example.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSize = 200000;
constexpr int64_t kRawBytes = 1000000;

// Writes steps 1, 2, ... until it is killed; each finished step is a byte in the pipe.
[[noreturn]] void write_forever(const fs::path& folder, int pipe_end) {
  for (int64_t step = 1;; ++step) {
    write_example(folder, step, kSize, kRawBytes);
    keep_newest_checkpoints(folder, 2);
    const char byte = 1;
    if (::write(pipe_end, &byte, 1) != 1) ::_exit(1);
  }
}

TEST(CheckpointFaults, KillingTheWriterNeverLosesAFinishedOne) {
  std::mt19937 random(7);
  for (int round = 0; round < 10; ++round) {
    const test::TemporaryDirectory folder;
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_forever(folder.path(), ends[1]);
    ::close(ends[1]);
    char byte = 0;
    ASSERT_EQ(::read(ends[0], &byte, 1), 1);  // from here on there is one to keep
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    ::kill(child, SIGKILL);
    int64_t finished = 1;
    while (::read(ends[0], &byte, 1) == 1) ++finished;
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);

    const auto latest = latest_checkpoint(folder.path());
    ASSERT_TRUE(latest.has_value()) << round;
    const CheckpointReader reader = CheckpointReader::open(*latest);
    EXPECT_TRUE(reader.step() == finished || reader.step() == finished + 1) << reader.step() << " " << finished;
    EXPECT_TRUE(holds_example(reader, kSize, kRawBytes));
    // The next run clears what is left and goes on.
    write_example(folder.path(), finished + 2, kSize);
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      EXPECT_NE(entry.path().filename().string().front(), '.') << entry.path();
    }
  }
}

// A part that does not fit on a disk: one that is built in memory, or a file that is written in pieces.
struct TooLarge {
  int64_t size;
  int64_t raw_bytes;
};
constexpr TooLarge kTooLarge[] = {{20 * kSize, 1000}, {kSize, 20 * kRawBytes}};

// Returns 0 when writing step 2 fails with Error(disk) and leaves step 1 as the only content.
int fails_and_keeps_the_first(const fs::path& folder, const TooLarge& large) {
  try {
    write_example(folder, 2, large.size, large.raw_bytes);
    return 1;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::disk) return 2;
  } catch (...) {
    return 3;
  }
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++entries;
  if (entries != 1) return 4;
  const auto latest = latest_checkpoint(folder);
  return latest && holds_example(CheckpointReader::open(*latest), kSize) ? 0 : 5;
}

TEST(CheckpointFaults, AFileSizeLimitKeepsThePreviousOne) {
  for (const TooLarge& large : kTooLarge) {
    const test::TemporaryDirectory folder;
    write_example(folder.path(), 1, kSize);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_IGN);  // then write() fails as it does on a full disk
      const rlimit limit{4 << 20, 4 << 20};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(9);
      ::_exit(fails_and_keeps_the_first(folder.path(), large));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST(CheckpointFaults, AFullDiskKeepsThePreviousOne) {
  const test::TemporaryDirectory folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=8m") != 0) {
    GTEST_SKIP() << "mounting a small disk is not permitted here; the test with a file size limit covers the same";
  }
  fs::create_directory(folder / "checkpoints");
  write_example(folder / "checkpoints", 1, kSize);
  for (const TooLarge& large : kTooLarge) EXPECT_EQ(fails_and_keeps_the_first(folder / "checkpoints", large), 0);
  EXPECT_EQ(::umount(folder.path().c_str()), 0);
}

}  // namespace
}  // namespace quire
