// Measures how much main memory a memory in a file takes while it is saved and loaded. QUIRE_TEST_STATE_MEGABYTES is
// its size, 256 by default; the project guarantees the result for 1024.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#include "core/files/file.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "tests/support/training_run.h"
#include "trainers/checkpoint/checkpoint_manifest.h"
#include "trainers/checkpoint/row_state.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 8;
constexpr int64_t kMegabyte = int64_t{1} << 20;

// A line of /proc/self/status in bytes, such as "VmRSS:"; -1 where the system does not say it.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size())) * 1024;
  }
  return -1;
}

// Returns the largest growth of resident memory during some work.
template <typename Do>
int64_t growth_during(const Do& something) {
  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM begins at what is resident now
  const int64_t before = status_bytes("VmHWM:");
  something();
  return status_bytes("VmHWM:") - before;
}

bool peak_can_be_reset() {
  if (status_bytes("VmHWM:") < 0) return false;
  const int64_t bytes = 64 * kMegabyte;
  {
    std::vector<char> much(static_cast<size_t>(bytes));
    std::fill(much.begin(), much.end(), 'x');
    if (much[much.size() / 3] != 'x') return false;
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return status_bytes("VmHWM:") - status_bytes("VmRSS:") < bytes / 2;
}

// Every byte of the memories, which are in files, so that none of it is a hole.
void fill(const StatePool& pool) {
  for (const NamedTensor& state : pool.tensors()) {
    if (!state.name.ends_with("0.keys.ring") && !state.name.ends_with("0.values.ring")) continue;
    for (int64_t row = 0; row < pool.rows(); ++row) {
      const Tensor values = state.tensor.select(0, row);
      const int64_t numel = values.numel();
      auto* numbers = values.data<float>();
      for (int64_t i = 0; i < numel; ++i) numbers[i] = static_cast<float>((i * 7 + row) % 10007);
      forget_pages(values.raw(), static_cast<size_t>(values.bytes()));
    }
  }
}

std::vector<std::pair<int64_t, std::string>> raw_files(const std::filesystem::path& checkpoint) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const ManifestFile& file : Manifest::read(checkpoint).files) {
    if (file.name.ends_with(".rows")) found.emplace_back(file.bytes, file.checksum);
  }
  return found;
}

TEST(StateMemory, AMemoryInAFileIsSavedAndLoadedRowByRow) {
  if (!(test_device() == kCpu)) GTEST_SKIP() << "a GPU keeps no state in files";
  if (!peak_can_be_reset()) GTEST_SKIP() << "the system does not say what was resident at most";
  const char* given = std::getenv("QUIRE_TEST_STATE_MEGABYTES");
  const int64_t megabytes = given != nullptr ? std::stoll(given) : 256;
  constexpr int64_t kEntryBytes = 2 * 32 * 4;  // a key and a value of all heads
  const std::string size = std::to_string(megabytes * kMegabyte / kRows / kEntryBytes);
  const TemporaryDirectory folder;
  write_corpus(folder / "corpus.h5", {{"train", texts_of_lengths({200, 150, 100, 50, 30, 60, 70, 80})}, {"valid", {}}});
  const std::unique_ptr<Corpus> corpus = Corpus::open(folder / "corpus.h5");
  const RunConfig config =
      mechanism_config({"run.precision=f32", "data.rows=" + std::to_string(kRows), "model.width=32",
                        "model.memory=[{kind: knn, layers: [0], top_k: 4, write: produce, carry: {length: " + size +
                            ", place: file}}]"});

  TrainingRun run(config, *corpus);
  run.losses(2);
  fill(*run.training().state);
  int64_t row_bytes = 0;
  for (const RowPart& part : run.training().state->row_parts()) row_bytes += part.bytes();
  ASSERT_GE(kRows * row_bytes, megabytes * kMegabyte);

  std::filesystem::path checkpoint;
  const int64_t to_save = growth_during([&] { checkpoint = run.save(folder / "saved"); });
  const std::vector<std::pair<int64_t, std::string>> saved = raw_files(checkpoint);
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(saved[0].first, kRows * row_bytes);
  std::optional<TrainingRun> resumed;
  const int64_t to_load = growth_during([&] { resumed.emplace(config, *corpus, checkpoint); });
  const int64_t max_bytes = row_bytes + 64 * kMegabyte;
  EXPECT_LE(to_save, max_bytes);
  EXPECT_LE(to_load, max_bytes);
  std::cout << megabytes << " MB in " << kRows << " rows: main memory grew by " << to_save / kMegabyte
            << " MB while saving and by " << to_load / kMegabyte << " MB while loading\n";

  // The loaded state equals the saved one.
  std::filesystem::remove_all(checkpoint);
  EXPECT_EQ(raw_files(resumed->save(folder / "again")), saved);
}

}  // namespace
}  // namespace quire::test
