#include "core/files/file_io.h"

#include <gtest/gtest.h>

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
  EXPECT_ERROR(write_file_durably("/dev/full", "x"), ErrorKind::disk, "/dev/full: No space left on device");
  EXPECT_ERROR(read_text_file(folder.path()), ErrorKind::disk, "Is a directory");
  EXPECT_ERROR(rename_durably(folder / "a", folder / "b"), ErrorKind::disk, "No such file");
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

TEST(File, MapShowsTheContentAndOutlivesTheFile) {
  const TemporaryDirectory folder;
  write_file_durably(folder / "x", "mapped");
  write_file_durably(folder / "empty", "");
  const MappedFile map(File::open(folder / "x"));
  ASSERT_EQ(map.bytes().size(), 6U);
  EXPECT_EQ(static_cast<char>(map.bytes()[5]), 'd');
  EXPECT_TRUE(MappedFile(File::open(folder / "empty")).bytes().empty());
}

}  // namespace
}  // namespace quire
