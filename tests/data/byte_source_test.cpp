#include "data/sources/open_byte_source.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/files/file_io.h"
#include "tests/support/compress.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::gzipped;
using test::zstandard;

struct Format {
  std::string name;
  std::string ending;
  std::string (*compress)(std::string_view);
};

class ByteSourceTest : public testing::TestWithParam<Format> {
 protected:
  std::filesystem::path file() const { return folder_ / ("x.txt" + GetParam().ending); }
  // Not to disk, for there are many.
  void write(const std::string& bytes) const { std::ofstream(file(), std::ios::binary) << bytes; }
  static std::string compressed(std::string_view text) { return GetParam().compress(text); }

  // Everything, in pieces of a size.
  std::string read(size_t piece = 1000) const {
    const std::unique_ptr<ByteSource> source = open_byte_source(file());
    std::string text;
    std::string buffer(piece, '\0');
    while (const size_t count = source->read(buffer)) text += buffer.substr(0, count);
    EXPECT_EQ(source->consumed(), static_cast<int64_t>(std::filesystem::file_size(file())));
    EXPECT_EQ(source->read(buffer), 0U);  // stays at the end
    return text;
  }

  test::TemporaryDirectory folder_;
};

INSTANTIATE_TEST_SUITE_P(Formats, ByteSourceTest,
                         testing::Values(Format{"gzip", ".gz", gzipped}, Format{"zstd", ".ZST", zstandard}),
                         [](const auto& tested) { return tested.param.name; });

// Larger than the buffers of reader and library, and hard to compress.
std::string long_text() {
  std::string text;
  uint32_t state = 1;
  while (text.size() < 700'000) {
    state = state * 1664525U + 1013904223U;
    text += static_cast<char>(state >> 24);
  }
  return text;
}

TEST_P(ByteSourceTest, GivesBackWhatWasCompressed) {
  for (const std::string& text : {std::string(), std::string("a"), std::string(3'000'000, 'x'), long_text()}) {
    write(compressed(text));
    EXPECT_TRUE(read(1 << 16) == text) << text.size();
  }
  write(compressed("short"));
  EXPECT_EQ(read(1), "short");
}

TEST_P(ByteSourceTest, ConcatenatedPartsFollowOneAnother) {
  write(compressed("one ") + compressed("") + compressed("two ") + compressed("three"));
  for (const size_t piece : {1, 3, 4, 100}) EXPECT_EQ(read(piece), "one two three");
  // A part that ends where the reader's window ends.
  std::string whole;
  std::string text;
  while (whole.size() < 600'000) {
    whole += compressed("part");
    text += "part";
  }
  write(whole);
  EXPECT_TRUE(read() == text);
}

TEST_P(ByteSourceTest, AFileThatEndsEarlyIsAnErrorWhereverItEnds) {
  const std::string whole = compressed("some text that is long enough") + compressed("and more of it");
  const size_t first = compressed("some text that is long enough").size();
  for (size_t size = 0; size < whole.size(); ++size) {
    if (size == first) continue;
    write(whole.substr(0, size));
    EXPECT_ERROR(read(), ErrorKind::data, "ends early");
    EXPECT_ERROR(read(), ErrorKind::data, "after byte " + std::to_string(size));
    EXPECT_ERROR(read(), ErrorKind::data, file().string());
  }
  write(whole.substr(0, first));
  EXPECT_EQ(read(), "some text that is long enough");
}

TEST_P(ByteSourceTest, OtherDataIsAnError) {
  write("this was never compressed");
  EXPECT_ERROR(read(), ErrorKind::data, "damaged " + GetParam().name + " data after byte 0");
  write(compressed("text") + "garbage that follows");
  EXPECT_ERROR(read(), ErrorKind::data, "damaged");
}

// Damage is found or leaves the text as it was (some header bytes mean nothing); it never gives another text. zstd
// frames made here have no checksum, so only gzip can promise it.
TEST_P(ByteSourceTest, DamageNeverCrashes) {
  const std::string text = "a text in which every byte is damaged in turn, again and again and again";
  const std::string whole = compressed(text);
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {1, 16, 128}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ bit);
      write(bytes);
      try {
        const std::unique_ptr<ByteSource> source = open_byte_source(file());
        std::string buffer(1000, '\0');
        const size_t count = source->read(buffer);
        if (GetParam().name == "gzip") {
          EXPECT_EQ(buffer.substr(0, count), text) << at;
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
      }
    }
  }
}

std::string read_all(const std::filesystem::path& path) {
  const std::unique_ptr<ByteSource> source = open_byte_source(path);
  std::string buffer(1'000'000, '\0');
  return buffer.substr(0, source->read(buffer));
}

// Tapes and copies of whole blocks leave such zeros.
TEST(ByteSource, ZerosMayFollowAGzipMember) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path file = folder / "x.gz";
  for (const size_t zeros : {1, 511, 300'000}) {
    write_file_durably(file, gzipped("text") + std::string(zeros, '\0'));
    EXPECT_EQ(read_all(file), "text") << zeros;
    write_file_durably(file, gzipped("text") + std::string(zeros, '\0') + gzipped(" and more"));
    EXPECT_EQ(read_all(file), "text and more") << zeros;
    write_file_durably(file, gzipped("text") + std::string(zeros, '\0') + "more");
    EXPECT_ERROR(read_all(file), ErrorKind::data, "damaged gzip data");
    write_file_durably(file, std::string(zeros, '\0') + gzipped("text"));
    EXPECT_ERROR(read_all(file), ErrorKind::data, "damaged gzip data");
  }
}

// A frame of one stored block, whose header asks for a window of 2^log bytes.
std::string frame_with_window(int log) {
  const auto window = static_cast<char>((log - 10) << 3);
  return std::string("\x28\xB5\x2F\xFD\0", 5) + window + std::string("\x29\0\0hello", 8);
}

TEST(ByteSource, AZstdWindowMayHaveTwoGibibytes) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path file = folder / "x.zst";
  for (const int log : {10, 27, 28, 31}) {
    write_file_durably(file, frame_with_window(log));
    EXPECT_EQ(read_all(file), "hello") << log;
  }
  write_file_durably(file, frame_with_window(32));
  EXPECT_ERROR(read_all(file), ErrorKind::data, "Frame requires too much memory");
}

TEST(ByteSource, OtherFilesAreReadAsTheyAre) {
  const test::TemporaryDirectory folder;
  write_file_durably(folder / "x.txt", gzipped("text"));
  const std::unique_ptr<ByteSource> source = open_byte_source(folder / "x.txt");
  std::string buffer(100, '\0');
  EXPECT_EQ(buffer.substr(0, source->read(buffer)), gzipped("text"));
  EXPECT_ERROR(open_byte_source(folder / "absent"), ErrorKind::disk, "absent");
}

}  // namespace
}  // namespace quire
