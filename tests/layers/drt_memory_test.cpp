// Measures the device memory of a document while it is read, by the device's own count.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "layers/pass/host_values.h"
#include "tests/layers/drt_stack_reader.h"
#include "tests/support/temporary_directory.h"

namespace quire::test {
namespace {

constexpr int64_t kPiece = 16;

// Counts the bytes that the device holds between passes, and the largest number during the last one.
struct DeviceBytes {
  int64_t live, peak;
};

DeviceBytes bytes_of_reading(int64_t chunks, DrtConfig drt = small_stack()) {
  drt.carry.place = test_device() == kCpu ? LogPlace::file : LogPlace::host;
  drt.carry.length = chunks;
  Allocator& allocator = device_backend(test_device().kind).allocator();
  const int64_t in_a_pass = 8;
  ChunkHooks hooks;
  hooks.piece = kPiece;
  const int64_t before = allocator.stats().bytes_in_use;
  StackReader reader(small_model(), drt, 3 * in_a_pass);
  reader.set_hooks(hooks);
  reader.document = "book";
  Tape tape(false);
  const Variable x = states(3 * in_a_pass);
  for (int64_t read = 0; read < chunks + in_a_pass; read += in_a_pass) {
    allocator.reset_peak();
    reader.read(tape, x);
  }
  return {allocator.stats().bytes_in_use - before, allocator.stats().peak_bytes - before};
}

// Keys and values of chunks lie elsewhere: a chunk of the document costs the device its landmark.
TEST(DrtMemory, OfTheDeviceGrowsWithLandmarksOnly) {
  const int64_t few = 2 * kPiece, many = 2 * few;
  bytes_of_reading(8);  // products take their workspace once
  const DeviceBytes small = bytes_of_reading(few), large = bytes_of_reading(many);
  const int64_t landmarks = (many - few) * kWidth * static_cast<int64_t>(sizeof(double));
  EXPECT_EQ(large.live - small.live, landmarks);
  EXPECT_EQ(large.peak - small.peak, landmarks);
}

// BM25 carries the tokens of chunks besides and reads them once in a pass; scores of a file take nothing.
TEST(DrtMemory, GivenScoresDoNotGrowWithTheDocument) {
  const int64_t few = 2 * kPiece, many = 2 * few;
  TemporaryDirectory folder;
  DrtConfig drt = small_stack();
  for (const ChunkScores scores : {ChunkScores::file, ChunkScores::bm25}) {
    drt.scores = scores;
    drt.weights = ChunkWeights::scores;
    drt.scores_file.reset();
    if (scores == ChunkScores::file) {
      drt.scores_file = folder / "scores.jsonl";
      std::ofstream file(*drt.scores_file);
      for (int64_t chunk = 0; chunk < many + 8; ++chunk) {
        file << R"({"document": "book", "chunk": )" << chunk << R"(, "indices": [], "scores": []})"
             << "\n";
      }
    }
    bytes_of_reading(8, drt);
    const DeviceBytes small = bytes_of_reading(few, drt), large = bytes_of_reading(many, drt);
    const int64_t landmarks = (many - few) * kWidth * static_cast<int64_t>(sizeof(double));
    const int64_t words = scores == ChunkScores::file ? 0 : (many - few) * drt.chunk * 4;
    EXPECT_EQ(large.live - small.live, landmarks + words);
    EXPECT_LE(large.peak - small.peak, landmarks + 2 * words);
  }
}

// Tensors with a place for each stored chunk have few sizes over a long document, so that their memory is reused.
TEST(DrtMemory, SizesRepeatWhileADocumentGrows) {
  constexpr int64_t kChunks = 400;
  DrtConfig drt = small_stack();
  drt.carry.length = kChunks;
  StackReader reader(small_model(), drt, 3);
  std::set<int64_t> sizes;
  ChunkHooks hooks;
  hooks.seen = [&](const std::string& name, const Variable& value) {
    if (name == "groups.0.scores") sizes.insert(value.dim(2));
  };
  reader.set_hooks(hooks);
  Tape tape(false);
  for (int64_t read = 0; read < kChunks; ++read) reader.read(tape, states(3));
  EXPECT_GE(*sizes.rbegin(), kChunks);
  EXPECT_LT(sizes.size(), 100U);
}

}  // namespace
}  // namespace quire::test
