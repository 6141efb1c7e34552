#include "data/corpus/corpus_on_ranks.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/files/file_io.h"
#include "core/ranks/in_process.h"
#include "tests/support/expect_error.h"
#include "tests/support/handmade_corpus.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

// Bytes that this thread has read from files so far; what lies in a map is not counted.
int64_t bytes_read() {
  std::ifstream io("/proc/thread-self/io");
  std::string name;
  int64_t bytes = -1;
  io >> name >> bytes;
  EXPECT_EQ(name, "rchar:");
  return bytes;
}

class CorpusOnRanks : public testing::Test {
 protected:
  std::filesystem::path corpus() const { return folder_ / "c.h5"; }
  void flip(size_t at) const {
    std::vector<std::byte> bytes = read_file(corpus());
    bytes.at(at) ^= std::byte{4};
    write_file_durably(corpus(), bytes);
  }
  test::TemporaryDirectory folder_;
};

TEST_F(CorpusOnRanks, OneRankPerHostReadsTheFile) {
  test::write_corpus(corpus(), {{"train", {std::string(4 << 20, 'x')}}, {"valid", {"y"}}});
  const auto size = static_cast<int64_t>(std::filesystem::file_size(corpus()));
  for (const Verify verify : {Verify::always, Verify::once}) {
    std::filesystem::remove(corpus().string() + ".verified");
    std::vector<int64_t> bytes(4);
    run_in_process(4,
                   [&](Ranks& ranks) {
                     const int64_t before = bytes_read();
                     const auto opened = open_corpus_on_ranks(corpus(), verify, {"train"}, ranks);
                     bytes[static_cast<size_t>(ranks.rank())] = bytes_read() - before;
                     std::vector<int32_t> token(1);
                     opened->split("train").tokens(0, (4 << 20) - 1, 1, token.data());
                     EXPECT_EQ(token[0], 'x');
                     EXPECT_EQ(opened->split("valid").documents(), 1);
                   },
                   {.hosts = {"a", "b", "b", "a"}, .probe = {}});
    EXPECT_GE(bytes[0], size);
    EXPECT_GE(bytes[1], size);
    EXPECT_LT(bytes[2], size / 4);
    EXPECT_LT(bytes[3], size / 4);
  }
}

TEST_F(CorpusOnRanks, DamageIsTheErrorOfAll) {
  test::write_corpus(corpus(), {{"train", {"some text", "more"}}});
  flip(std::filesystem::file_size(corpus()) / 2);
  const auto open = [&](Ranks& ranks) { open_corpus_on_ranks(corpus(), Verify::once, {}, ranks); };
  for (const int size : {1, 3}) {
    EXPECT_ERROR(run_in_process(size, open), ErrorKind::data, corpus().string() + ": checksum");
  }
}

// The ids of the named splits are looked at by the rank that verifies, of others by each that uses them.
TEST_F(CorpusOnRanks, TokenIdsAreChecked) {
  test::HandmadeCorpus handmade;
  handmade.tokens = Tensor::from<uint16_t>({1, 3, 258}, {3});
  handmade.write(corpus());
  for (const std::vector<std::string>& splits : {std::vector<std::string>{"train"}, std::vector<std::string>{}}) {
    EXPECT_ERROR(run_in_process(2,
                                [&](Ranks& ranks) {
                                  const auto opened = open_corpus_on_ranks(corpus(), Verify::once, splits, ranks);
                                  opened->split("train");
                                }),
                 ErrorKind::data, "token 2 is 258");
  }
}

TEST_F(CorpusOnRanks, HostsHaveTheSameCorpus) {
  test::write_corpus(corpus(), {{"train", {"some text"}}});
  test::write_corpus(folder_ / "other.h5", {{"train", {"some texT"}}});
  const auto open = [&](Ranks& ranks) {
    open_corpus_on_ranks(folder_ / (ranks.rank() == 2 ? "other.h5" : "c.h5"), Verify::always, {}, ranks);
  };
  EXPECT_ERROR(run_in_process(3, open, {.hosts = {"a", "a", "b"}, .probe = {}}), ErrorKind::communication,
               "rank 2 has ");
}

// A file that is cut after it was verified is not mapped beyond its end.
TEST_F(CorpusOnRanks, VerifiedElsewhereStillHasItsSize) {
  test::write_corpus(corpus(), {{"train", {"some text"}}});
  EXPECT_NO_THROW(Corpus::open(corpus(), Verify::done));
  std::filesystem::resize_file(corpus(), std::filesystem::file_size(corpus()) - 1);
  EXPECT_ERROR(Corpus::open(corpus(), Verify::done), ErrorKind::data, "truncated or replaced");
}

}  // namespace
}  // namespace quire
