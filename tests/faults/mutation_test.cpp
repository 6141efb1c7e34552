// Random damage to corpora and checkpoints is always found: an error of the right kind, one line, never a crash.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "core/check.h"
#include "core/files/file_io.h"
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

// Opens a corpus and reads all of it in a process of its own; 0, or the exit code of the error.
int opened_in_a_child(const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    // The limit ends a test that reads a file for ever. It counts processor time, because the machine may have other
    // work.
    const rlimit seconds{20, 20};
    ::setrlimit(RLIMIT_CPU, &seconds);
    try {
      const std::unique_ptr<Corpus> corpus = Corpus::open(path);
      for (const std::string& name : corpus->split_names()) {
        const Split& split = corpus->split(name);
        std::vector<int32_t> ids;
        for (int64_t document = 0; document < split.documents(); ++document) {
          ids.resize(static_cast<size_t>(split.length(document)));
          split.tokens(document, 0, split.length(document), ids.data());
        }
      }
      ::_exit(0);
    } catch (const Error& error) {
      ::_exit(error.exit_code());
    } catch (...) {
      ::_exit(99);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// A manifest can be made for any file, so HDF5 may meet damage that no checksum has found.
TEST(Mutation, OfACorpusUnderAFittingChecksum) {
  const TinyRun tiny;
  const std::string before = read_text(tiny.corpus());
  CorpusManifest manifest = read_manifest(tiny.corpus());
  constexpr size_t kStructure = 2400;  // the first bytes hold groups, attributes and texts
  ASSERT_GT(before.size(), kStructure);
  std::mt19937 random(5);
  int refused = 0;
  for (size_t round = 0; round < kRounds; ++round) {
    std::string after = before;
    const size_t at = random() % kStructure;
    after[at] = static_cast<char>(after[at] ^ static_cast<char>(1 + random() % 255));
    write_text(tiny.corpus(), after);
    manifest.checksum = checksum_of_file(tiny.corpus());
    write_text(manifest_path(tiny.corpus()), manifest_to_json(manifest));
    const int code = opened_in_a_child(tiny.corpus());
    EXPECT_TRUE(code == 0 || code == static_cast<int>(ErrorKind::data)) << fmt::format("byte {}: {}", at, code);
    refused += code != 0 ? 1 : 0;
  }
  EXPECT_GT(refused, 20);
}

TEST(Mutation, OfACheckpoint) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const fs::path checkpoint = tiny.checkpoint("run", 2);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 8U);
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
