// Random damage to corpora and checkpoints is always found: an error of the right kind, one line, never a crash.
#include <random>

#include "core/check.h"
#include "data/corpus/corpus.h"
#include "tests/faults/expect_fault.h"
#include "trainers/checkpoint/training_checkpoint.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 200;

// Cuts the end off, or changes one byte to another. Spaces of JSON files are left alone: they mean nothing.
std::string mutated(std::string bytes, std::mt19937& random) {
  if (random() % 4 == 0) return bytes.substr(0, random() % bytes.size());
  size_t at = random() % bytes.size();
  while (bytes[at] == ' ' || bytes[at] == '\n') at = random() % bytes.size();
  bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1 + random() % 255));
  return bytes;
}

template <typename Open>
void expect_found(ErrorKind kind, const Open& open, const std::string& what) {
  try {
    open();
    ADD_FAILURE() << what << ": not found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << what << ": " << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
}

// A line break at the very end of a JSON file may be cut off.
bool means_the_same(const std::string& before, const std::string& after) {
  return after.size() + 1 == before.size() && before.back() == '\n';
}

TEST(Mutation, OfACorpus) {
  const TinyRun tiny;
  std::mt19937 random(3);
  const fs::path files[] = {tiny.corpus(), tiny / "corpus.h5.manifest"};
  for (int round = 0; round < kRounds; ++round) {
    const fs::path& file = files[round % 2];
    const std::string before = read_text(file);
    const std::string after = mutated(before, random);
    if (means_the_same(before, after)) continue;
    write_text(file, after);
    expect_found(
        ErrorKind::data, [&] { Corpus::open(tiny.corpus()); }, fmt::format("round {}", round));
    write_text(file, before);
  }
  EXPECT_NO_THROW(Corpus::open(tiny.corpus()));
}

TEST(Mutation, OfACheckpoint) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const fs::path checkpoint = tiny.checkpoint("run", 2);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 7U);
  std::mt19937 random(4);
  for (int round = 0; round < kRounds; ++round) {
    const fs::path& file = files[static_cast<size_t>(round) % files.size()];
    const std::string before = read_text(file);
    const std::string after = mutated(before, random);
    if (means_the_same(before, after) && file.filename() == "manifest.json") continue;
    write_text(file, after);
    expect_found(
        ErrorKind::checkpoint, [&] { CheckpointReader::open(checkpoint); },
        fmt::format("round {}, {}", round, file.filename().string()));
    write_text(file, before);
  }
  EXPECT_NO_THROW(CheckpointReader::open(checkpoint));
}

}  // namespace
}  // namespace quire::test
