#include "core/files/file_io.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>

#include "tests/support/expect_error.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::SmallDisk;
using test::TemporaryDirectory;

TEST(FileIo, WritesAndReadsBack) {
  const TemporaryDirectory folder;
  const std::string text("a\0b\nend", 7);
  write_file_durably(folder / "x", text);
  EXPECT_EQ(read_text_file(folder / "x"), text);
  EXPECT_EQ(read_file(folder / "x").size(), 7U);
  write_file_durably(folder / "x", "");
  EXPECT_EQ(read_text_file(folder / "x"), "");
}

TEST(FileIo, ChecksumIsXxh3AndTheSameForFileAndMemory) {
  const TemporaryDirectory folder;
  // The reference value of XXH3 for no input.
  EXPECT_EQ(checksum_of({}), "2d06800538d394c2");
  std::vector<std::byte> bytes(3'000'001);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  write_file_durably(folder / "big", bytes);
  EXPECT_EQ(checksum_of_file(folder / "big"), checksum_of(bytes));
  bytes[1'500'000] ^= std::byte{1};
  EXPECT_NE(checksum_of_file(folder / "big"), checksum_of(bytes));
}

TEST(FileIo, WhoWaitsForAChecksumIsTold) {
  const TemporaryDirectory folder;
  write_file_durably(folder / "x", "x");
  std::filesystem::resize_file(folder / "x", 1'000'000'000);  // a hole
  const auto said = [&](std::chrono::milliseconds patience) {
    File file = File::open(folder / "x");
    testing::internal::CaptureStderr();
    checksum_of_file(file, patience);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(std::chrono::hours(1)), "");
  const std::string lines = said({});
  const std::string beginning = "reading " + (folder / "x").string() + " for its checksum: 0.00 of 1.00 GB, 0 s\n";
  EXPECT_TRUE(lines.starts_with(beginning)) << lines;
  // Times grow threefold: of nearly a thousand pieces few are told of.
  const auto count = std::count(lines.begin(), lines.end(), '\n');
  EXPECT_GE(count, 2) << lines;
  EXPECT_LE(count, 12) << lines;
}

TEST(FileIo, ReplacesAtomically) {
  const TemporaryDirectory folder;
  replace_file_atomically(folder / "x", "old");
  replace_file_atomically(folder / "x", "new");
  EXPECT_EQ(read_text_file(folder / "x"), "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.partial"));
}

TEST(FileIo, FailureNamesThePathAndTheReason) {
  const TemporaryDirectory folder;
  EXPECT_ERROR(read_file(folder / "missing"), ErrorKind::disk, "missing: No such file or directory");
  EXPECT_ERROR(write_file_durably(folder / "no/such", "x"), ErrorKind::disk, "no/such: No such file");
  EXPECT_ERROR(read_text_file(folder.path()), ErrorKind::disk, "is a folder, not a regular file");
  EXPECT_ERROR(rename_durably(folder / "a", folder / "b"), ErrorKind::disk, "No such file");
}

// Some network file systems refuse to flush folders with the same code.
TEST(FileIo, FoldersThatCannotBeFlushedAreLeftToTheirFileSystem) {
  EXPECT_NO_THROW(flush_directory("/proc/self"));
}

// Neither waits for a writer nor reads without end.
TEST(FileIo, OnlyRegularFilesAreReadAndWritten) {
  const TemporaryDirectory folder;
  const std::filesystem::path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder / "link");
  EXPECT_ERROR(read_text_file(fifo), ErrorKind::disk, "fifo: is a FIFO, not a regular file");
  EXPECT_ERROR(read_text_file(folder / "link", {.kind = ErrorKind::config}), ErrorKind::config, "link: is a device");
  EXPECT_ERROR(checksum_of_file("/dev/zero", ErrorKind::data), ErrorKind::data, "/dev/zero: is a device");
  EXPECT_ERROR(write_file_durably("/dev/full", "x"), ErrorKind::disk, "/dev/full: is a device");
  EXPECT_ERROR(write_file_durably(fifo, "x"), ErrorKind::disk, "fifo");
  write_file_durably(folder / "target", "kept");
  std::filesystem::create_symlink(folder / "target", folder / "to_target");
  EXPECT_ERROR(write_file_durably(folder / "to_target", "x"), ErrorKind::disk, "to_target");
  EXPECT_EQ(read_text_file(folder / "to_target"), "kept");
}

TEST(FileIo, ATextThatIsTooLongIsNotRead) {
  const TemporaryDirectory folder;
  write_file_durably(folder / "sparse", "x");
  std::filesystem::resize_file(folder / "sparse", uintmax_t{20} << 30);
  EXPECT_ERROR(read_text_file(folder / "sparse", {.kind = ErrorKind::data}), ErrorKind::data,
               "sparse: has 21474836480 bytes, and at most 67108864 are read");
}

TEST(FileIo, FullDiskKeepsTheOlderFile) {
  const SmallDisk disk(64);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small tmpfs is not permitted here";
  replace_file_atomically(disk.path() / "x", "old");
  EXPECT_ERROR(replace_file_atomically(disk.path() / "x", std::string(100'000, 'n')), ErrorKind::disk,
               "No space left on device");
  EXPECT_EQ(read_text_file(disk.path() / "x"), "old");
  EXPECT_FALSE(std::filesystem::exists(disk.path() / "x.partial"));
}

TEST(File, ScratchHasNoName) {
  const TemporaryDirectory folder;
  File scratch = File::scratch(folder.path());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  scratch.write(std::as_bytes(std::span("hello", 5)));
  scratch.rewind();
  std::vector<std::byte> buffer(8);
  EXPECT_EQ(scratch.read(buffer), 5U);
  EXPECT_EQ(static_cast<char>(buffer[4]), 'o');
  EXPECT_EQ(scratch.read(buffer), 0U);
}

// A process that is killed between two calls leaves an empty file; whatever holds something is not ours.
TEST(File, ScratchRemovesWhatKilledProcessesHaveLeft) {
  const TemporaryDirectory folder;
  write_file_durably(folder / ".quire-scratch-a1B2c3", "");
  write_file_durably(folder / ".quire-scratch-kept", "x");
  write_file_durably(folder / "empty", "");
  std::filesystem::create_symlink("empty", folder / ".quire-scratch-link");
  std::filesystem::create_directory(folder / ".quire-scratch-folder");
  File::scratch(folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder / ".quire-scratch-a1B2c3"));
  for (const char* kept : {".quire-scratch-kept", "empty", ".quire-scratch-link", ".quire-scratch-folder"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / kept)) << kept;
  }
}

TEST(File, MapShowsTheContentAndOutlivesTheFile) {
  const TemporaryDirectory folder;
  write_file_durably(folder / "x", "mapped");
  write_file_durably(folder / "empty", "");
  const MappedFile map(File::open(folder / "x"));
  ASSERT_EQ(map.bytes().size(), 6U);
  EXPECT_EQ(static_cast<char>(map.bytes()[5]), 'd');
  EXPECT_TRUE(MappedFile(File::open(folder / "empty")).bytes().empty());
}

// Bytes beyond the new end are not read as zeros, and no signal ends the program.
TEST(File, AMapWhoseFileBecomesShorterEndsInOneLine) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "x";
  const std::string text(20'000, 'a');
  const auto read_after_truncation = [&] {
    write_file_durably(path, text);
    const MappedFile other(File::open(path));
    const MappedFile map(File::open(path));
    std::filesystem::resize_file(path, 100);
    const volatile std::byte* bytes = map.bytes().data();
    ::_exit(static_cast<int>(bytes[10'000]));
  };
  EXPECT_EXIT(read_after_truncation(), ::testing::ExitedWithCode(3),
              "^quire: error: .*/x: became shorter while it was read, .*\n$");
}

TEST(File, OtherBusErrorsAreLeftAsTheyWere) {
  const TemporaryDirectory folder;
  write_file_durably(folder / "x", "mapped");
  const MappedFile map(File::open(folder / "x"));
  // The default ends the process. The handlers of sanitizers, where they were there before, report and exit with 1
  // (AddressSanitizer) or 66 (ThreadSanitizer); what quire says of its own files exits with another code.
  const auto left = [](int status) {
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) ||
           (WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 66));
  };
  EXPECT_EXIT(::raise(SIGBUS); ::raise(SIGBUS), left, "");
}

}  // namespace
}  // namespace quire
