// Tests system calls that a signal interrupts: this program defines fsync(), ftruncate() and posix_fallocate() before
// those of the C library, and they fail as interrupted calls do when a test asks for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "core/files/file_io.h"
#include "tests/support/temporary_directory.h"

namespace {

thread_local int interruptions = 0;  // number of interruptions still to come

bool interrupted() {
  if (interruptions == 0) return false;
  --interruptions;
  errno = EINTR;
  return true;
}

}  // namespace

extern "C" int fsync(int descriptor) {
  return interrupted() ? -1 : static_cast<int>(::syscall(SYS_fsync, descriptor));
}
extern "C" int ftruncate(int descriptor, off_t size) noexcept {
  return interrupted() ? -1 : static_cast<int>(::syscall(SYS_ftruncate, descriptor, size));
}
extern "C" int posix_fallocate(int descriptor, off_t begin, off_t size) {
  if (interrupted()) return EINTR;
  return ::syscall(SYS_fallocate, descriptor, 0, begin, size) == 0 ? 0 : errno;
}

namespace quire {
namespace {

TEST(Interrupted, CallsAreMadeAgain) {
  const test::TemporaryDirectory folder;
  const auto with = [](int count, const std::function<void()>& work) {
    interruptions = count;
    EXPECT_NO_THROW(work());
    EXPECT_EQ(std::exchange(interruptions, 0), 0);  // all of them came
  };
  with(2, [&] { File::create(folder / "created"); });
  with(3, [&] { write_file_durably(folder / "written", std::string_view("text")); });
  with(2, [&] { flush_file(folder / "written"); });
  with(2, [&] { flush_directory(folder.path()); });
  with(2, [&] { EXPECT_NE(map_scratch_file(folder.path(), 5000), nullptr); });
  with(5, [&] { replace_file_atomically(folder / "written", std::string_view("other")); });
  EXPECT_EQ(read_text_file(folder / "written"), "other");
}

}  // namespace
}  // namespace quire
