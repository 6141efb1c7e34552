#include "data/corpus/corpus_stamp.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <thread>

#include "core/files/file_io.h"
#include "data/corpus/corpus.h"
#include "tests/support/expect_error.h"
#include "tests/support/handmade_corpus.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;

class CorpusStampTest : public testing::Test {
 protected:
  CorpusStampTest() { ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1); }
  ~CorpusStampTest() override { ::unsetenv("XDG_CACHE_HOME"); }

  fs::path corpus() const { return folder_ / "c.h5"; }
  fs::path stamp() const { return folder_ / "c.h5.verified"; }
  void write() const { test::write_corpus(corpus(), {{"train", {"some text", "more"}}}, {.force = true}); }
  std::unique_ptr<Corpus> open(nanoseconds settle = nanoseconds(0)) const {
    return Corpus::open(corpus(), Verify::once, settle);
  }
  // Changes one byte of the tokens and, unlike damage, nothing that the stamp looks at: shows whether the file is read.
  void damage_unnoticed() const {
    flip(fs::file_size(corpus()) / 2);
    const std::string identity = identity_of(File::open(corpus()));
    std::string text = read_text_file(stamp());
    const size_t begin = text.find(":\"") + 2;
    text.replace(begin, text.find('"', begin) - begin, identity);
    write_file_durably(stamp(), text);
  }
  void flip(size_t at) const {
    std::vector<std::byte> bytes = read_file(corpus());
    bytes.at(at) ^= std::byte{4};
    write_file_durably(corpus(), bytes);
  }
  // Returns the properties that all hosts see alike: the number of the device is not among them.
  std::string identity_of(const File& file) const {
    struct stat status {};
    EXPECT_EQ(::fstat(file.descriptor(), &status), 0);
    const auto nanoseconds_of = [](const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; };
    return std::to_string(status.st_ino) + " " + std::to_string(status.st_size) + " " +
           std::to_string(nanoseconds_of(status.st_mtim)) + " " + std::to_string(nanoseconds_of(status.st_ctim)) + " " +
           read_manifest(corpus()).checksum;
  }

  test::TemporaryDirectory folder_;
};

TEST_F(CorpusStampTest, AVerifiedFileIsNotReadAgain) {
  write();
  open();
  ASSERT_TRUE(fs::exists(stamp()));
  damage_unnoticed();
  EXPECT_NO_THROW(open());
  EXPECT_ERROR(Corpus::open(corpus()), ErrorKind::data, "damaged");  // Verify::always reads it
}

TEST_F(CorpusStampTest, AChangedFileIsVerifiedAgain) {
  write();
  open();
  flip(fs::file_size(corpus()) / 2);  // size and inode stay, the times change
  EXPECT_ERROR(open(), ErrorKind::data, "damaged; run quire prepare again");
  write();
  EXPECT_NO_THROW(open());
  fs::resize_file(corpus(), fs::file_size(corpus()) - 1);
  EXPECT_ERROR(open(), ErrorKind::data, "truncated or replaced");
  // Another corpus under its name, with another inode.
  write();
  open();
  test::write_corpus(folder_ / "other.h5", {{"train", {"some texT", "more"}}});
  fs::rename(folder_ / "other.h5", corpus());
  EXPECT_ERROR(open(), ErrorKind::data, "c.h5");
}

TEST_F(CorpusStampTest, AFileChangedJustNowIsNotTrusted) {
  write();
  open(std::chrono::hours(1));
  EXPECT_FALSE(fs::exists(stamp()));
  open();
  damage_unnoticed();
  EXPECT_NO_THROW(open());
  EXPECT_ERROR(open(std::chrono::hours(1)), ErrorKind::data, "damaged");
}

TEST_F(CorpusStampTest, DamagedStampsAreAsGoodAsNone) {
  write();
  open();
  const std::string good = read_text_file(stamp());
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), good.substr(0, good.size() / 2),
                                  std::string("{\"file\": 1, \"splits\": []}")}) {
    write_file_durably(stamp(), text);
    EXPECT_NO_THROW(open());
    EXPECT_EQ(read_text_file(stamp()), good.substr(0, good.find('[')) + "[]}\n");
  }
}

TEST_F(CorpusStampTest, AReadOnlyFolderHasItsStampInTheCache) {
  write();
  fs::create_directories(stamp() / "in the way");  // root may write everywhere
  open();
  ASSERT_EQ(std::distance(fs::directory_iterator(folder_ / "cache/quire"), {}), 1);
  flip(fs::file_size(corpus()) / 2);
  EXPECT_ERROR(open(), ErrorKind::data, "damaged");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("XDG_CACHE_HOME", (corpus() / "no folder").c_str(), 1);
  write();
  EXPECT_NO_THROW(open());  // nowhere to write: verified each time
}

TEST_F(CorpusStampTest, TokenIdsAreCheckedOnceToo) {
  test::HandmadeCorpus handmade;
  handmade.tokens = Tensor::from<uint16_t>({1, 3, 258}, {3});
  handmade.write(corpus());
  EXPECT_ERROR(open()->split("train"), ErrorKind::data, "token 2 is 258");
  EXPECT_ERROR(open()->split("train"), ErrorKind::data, "token 2 is 258");  // wrong ones are not remembered
  handmade.tokens = Tensor::from<uint16_t>({1, 3, 257}, {3});
  handmade.write(corpus());
  open()->split("train");
  EXPECT_NE(read_text_file(stamp()).find("[\"train\"]"), std::string::npos);
}

TEST_F(CorpusStampTest, ManyMayOpenAtOnce) {
  write();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this] {
      for (int round = 0; round < 5; ++round) EXPECT_NO_THROW(open()->split("train"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace quire
