// A log that lies in a file: how much of it stays in main memory.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "kernels/knn.h"
#include "layers/state/state_pool.h"
#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"

namespace quire::test {
namespace {

// Bytes of main memory that this process has in the mapping of an address (Linux: /proc/self/smaps).
int64_t resident_bytes(const void* address) {
  const auto expected = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= expected && expected < end;
    } else if (inside && line.rfind("Rss:", 0) == 0) {
      return std::stoll(line.substr(4)) * 1024;
    }
  }
  return -1;
}

// 64 MiB are written and searched, and after each step no page of them stays.
TEST(LogsInFiles, TakeNoMainMemoryFromStepToStep) {
  constexpr int64_t kRows = 2;
  constexpr int64_t kTokens = 4096;
  constexpr int64_t kLength = 32768;
  constexpr int64_t kSize = 256;
  constexpr int64_t kBytes = kRows * kLength * kSize * 4;
  constexpr int64_t kMaxResident = int64_t{1} << 20;
  StateLayout layout;
  const LogGroupId group = layout.add_log_group("memory", kLength, {.place = LogPlace::file, .waits = true});
  const LogId log = layout.add_log(group, "keys", {1, kSize});
  StatePool pool(layout, kRows, kTokens, DType::f32, kCpu);
  const StateView view = pool.view(0, kRows);
  const Tensor ring = view.stored_ring(log);
  ASSERT_EQ(ring.bytes(), kBytes);
  if (resident_bytes(ring.raw()) < 0) GTEST_SKIP() << "the system does not say what is resident";

  RandomTensors random(1);
  const Tensor keys = random.normal({kRows, kTokens, 1, kSize}, 1, 0, DType::f32);
  const Tensor q = random.normal({kRows, 1, 1, kSize}, 1, 0, DType::f32);
  const Tensor index = Tensor::empty({kRows, 1, 1, 4}, DType::i32);
  const Tensor score = Tensor::empty({kRows, 1, 1, 4}, DType::f32);
  const auto search = [&] {
    ops::KnnMemory memory;
    memory.keys = ring;
    memory.head = view.ring_head(group);
    const std::vector<int64_t> lengths = view.lengths(group);
    memory.length = Tensor::from(std::vector<int32_t>(lengths.begin(), lengths.end()), {kRows});
    ops::knn_search(index, score, q, memory, ops::KnnSearch::exact);
  };
  for (int64_t written = 0; written < kLength + 2 * kTokens; written += kTokens) {
    pool.begin_step(one_segment(kRows, kTokens, std::vector<uint8_t>(kRows, written == 0 ? 1 : 0)));
    search();
    view.append(log, keys);
    pool.commit();
    EXPECT_LE(resident_bytes(ring.raw()), kMaxResident) << "after " << written + kTokens << " tokens";
  }
  // Nothing of this is true because nothing was there: a search reads all of it, row by row it need not stay.
  search();
  EXPECT_GE(resident_bytes(ring.raw()), kBytes / 2);
  const std::vector<int32_t> found = index.to_vector<int32_t>();
  const std::vector<float> scores = score.to_vector<float>();
  pool.view(0, 1).forget_pages(log);
  const int64_t half = resident_bytes(ring.raw());
  EXPECT_LE(half, kBytes / 2 + kMaxResident);
  pool.view(1, 2).forget_pages(log);
  EXPECT_LE(resident_bytes(ring.raw()), kMaxResident);
  search();
  EXPECT_EQ(index.to_vector<int32_t>(), found);
  EXPECT_EQ(score.to_vector<float>(), scores) << "the file keeps what was written";
  EXPECT_GT(scores[0], 0);
}

// State that does not fit is refused before anything is allocated. Logs in files need no memory (above).
TEST(LogsInMemory, RowsThatMemoryCannotHoldAreRefused) {
  constexpr int64_t kRows = 4096;
  constexpr int64_t kLength = int64_t{1} << 16;
  constexpr int64_t kSize = int64_t{1} << 16;
  const auto pool_of = [](LogPlace place, int64_t rows) {
    StateLayout layout;
    layout.add_log(layout.add_log_group("memory", kLength, {.place = place}), "keys", {kSize});
    return StatePool(layout, rows, 1, DType::f32, kCpu);
  };
  for (const LogPlace place : {LogPlace::device, LogPlace::host}) {
    EXPECT_ERROR(pool_of(place, kRows), ErrorKind::memory, "4096 rows that carry 17.2 GB each do not fit into");
    EXPECT_EQ(pool_of(place, 0).rows(), 0);  // of a rank beyond the number of rows
  }
}

}  // namespace
}  // namespace quire::test
