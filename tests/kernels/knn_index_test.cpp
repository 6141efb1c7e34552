// The inverted file over a memory's keys.
#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/knn_index.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

constexpr int64_t kSize = 16;

// Keys about a few centres, in the order in which they are written; a ring holds the last of them.
class KnnIndexes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!load_faiss().found) GTEST_SKIP() << load_faiss().reason;
    RandomTensors random(5);
    keys_ = random.normal({kWritten, kSize}, 0.3, 0, DType::f32);
    const Tensor centres = random.normal({20, kSize}, 1, 0, DType::f32);
    for (int64_t m = 0; m < kWritten; ++m) {
      const int64_t centre = random.below(20);
      for (int64_t d = 0; d < kSize; ++d) {
        keys_.data<float>()[m * kSize + d] += centres.data<float>()[centre * kSize + d];
      }
    }
    q_ = random.normal({1, kQueries, 1, kSize}, 1, 0, DType::f32);
  }

  // Returns the memory of one row and head after so many entries.
  ops::KnnMemory ring(int64_t written) const {
    ops::KnnMemory memory;
    memory.keys = Tensor::zeros({1, kSlots, 1, kSize}, DType::f32);
    for (int64_t m = std::max<int64_t>(0, written - kSlots); m < written; ++m) {
      std::copy_n(keys_.data<float>() + m * kSize, kSize, memory.keys.data<float>() + m % kSlots * kSize);
    }
    memory.head = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(written % kSlots)}, {1});
    memory.length = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(std::min(written, kSlots))}, {1});
    return memory;
  }

  struct Found {
    Tensor index = Tensor::zeros({1, kQueries, 1, kTopK}, DType::i32);
    Tensor score = Tensor::zeros({1, kQueries, 1, kTopK}, DType::f32);
  };
  Found exact(int64_t written) const {
    Found found;
    ops::knn_search(found.index, found.score, q_, ring(written), ops::KnnSearch::exact);
    return found;
  }
  Found searched(const KnnIndex& index, int64_t written, int64_t probes) const {
    Found found;
    index.search(found.index.data<int32_t>(), found.score.data<float>(), q_.data<float>(), kQueries, kTopK, probes,
                 read_entries(ring(written), 0, 0, written));
    return found;
  }

  static constexpr int64_t kWritten = 5000;
  static constexpr int64_t kSlots = 2000;
  static constexpr int64_t kQueries = 40;
  static constexpr int64_t kTopK = 10;
  const KnnIndexOptions options_{kSize, kSlots, 16, 700};
  Tensor keys_, q_;
};

TEST_F(KnnIndexes, FindWhatIsReadable) {
  KnnIndex index(options_);
  for (int64_t written = 90; written <= 4700; written += 461) {
    SCOPED_TRACE(written);
    index.update(written, read_entries(ring(written), 0, 0, written));
    EXPECT_EQ(index.is_ready(), written >= 700);
    if (!index.is_ready()) continue;
    // With all lists the result is that of the exact search, to the last bit; with few it is most of it.
    const Found all = searched(index, written, 16);
    EXPECT_TRUE(same_bits(all.index, exact(written).index));
    EXPECT_TRUE(same_bits(all.score, exact(written).score));
    const Found some = searched(index, written, 4);
    const double share = recall(some.index.data<int32_t>(), exact(written).index.data<int32_t>(), kQueries, kTopK);
    EXPECT_GE(share, 0.6);
    EXPECT_LE(share, 1);
  }
}

// After a resume the ring is all there is.
TEST_F(KnnIndexes, AreTheSameAfterAResume) {
  KnnIndex never_stopped(options_);
  for (int64_t written = 100; written <= 4600; written += 300) {
    never_stopped.update(written, read_entries(ring(written), 0, 0, written));
    KnnIndex resumed(options_);
    resumed.update(written, read_entries(ring(written), 0, 0, written));
    ASSERT_EQ(resumed.is_ready(), never_stopped.is_ready());
    if (!resumed.is_ready()) continue;
    for (const int64_t probes : {1, 3}) {
      const Found a = searched(never_stopped, written, probes);
      const Found b = searched(resumed, written, probes);
      EXPECT_TRUE(same_bits(a.index, b.index)) << written << ", " << probes << " probes";
      EXPECT_TRUE(same_bits(a.score, b.score));
    }
  }
}

TEST_F(KnnIndexes, AreClearedAndRefuseWhatDoesNotFit) {
  KnnIndex index(options_);
  index.update(1500, read_entries(ring(1500), 0, 0, 1500));
  EXPECT_ERROR(index.update(1400, read_entries(ring(1400), 0, 0, 1400)), ErrorKind::internal,
               "1400 entries after 1500");
  index.clear();
  EXPECT_FALSE(index.is_ready());
  index.update(800, read_entries(ring(800), 0, 0, 800));
  EXPECT_TRUE(same_bits(searched(index, 800, 16).index, exact(800).index));
  EXPECT_ERROR(KnnIndex({kSize, 100, 16, 100}), ErrorKind::config, "the period must be at least 1 and below");
  EXPECT_ERROR(read_entries(ring(3000), 0, 0, 3000)(q_.data<float>(), 999, 1), ErrorKind::internal,
               "entries 999 to 1000 of 3000, 2000 readable");
}

TEST(KnnIndexMissing, IsSaid) {
  if (load_faiss().found) GTEST_SKIP() << "FAISS is here";
  EXPECT_ERROR(KnnIndex({4, 100, 4, 50}), ErrorKind::config, "an inverted file needs FAISS");
}

TEST(Recall, CountsWhatBothFound) {
  const std::vector<int32_t> exact{3, 1, 2, 7, -1, -1};
  const std::vector<int32_t> found{2, 3, 9, -1, -1, 7};
  EXPECT_DOUBLE_EQ(recall(found.data(), exact.data(), 2, 3), 0.75);
  EXPECT_DOUBLE_EQ(recall(found.data(), exact.data(), 0, 3), 1);
}

}  // namespace
}  // namespace quire::test
