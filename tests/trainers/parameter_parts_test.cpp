#include "trainers/optimizer/parameter_parts.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "kernels/backend.h"

namespace quire {
namespace {

using Cut = ParameterParts::Cut;

// Matrices and vectors of awkward sizes, and one large matrix.
class Parts : public ::testing::Test {
 protected:
  Parts() {
    load_backends();
    for (int i = 0; i < 40; ++i) {
      const auto bits = philox({}, 0, 0, 0, static_cast<uint32_t>(i));
      const Shape shape = i == 7       ? Shape{300, 400}
                          : i % 3 == 0 ? Shape{1 + bits[0] % 100}
                                       : Shape{1 + bits[0] % 70, 1 + bits[1] % 70};
      store_.parameter("p" + std::to_string(i), shape, Initializer::constant(0), shape.rank() > 1);
    }
    store_.allocate(DType::f32, kCpu, 1);
  }
  ParameterStore store_;
};

TEST_F(Parts, BucketsFillTheArenaWhateverTheNumberOfRanks) {
  const ParameterParts one(store_, {0, 1}, Cut::anywhere, 5000);
  EXPECT_EQ(one.mine(), (std::vector<ArenaRange>{{0, store_.values().numel()}}));
  EXPECT_GT(one.buckets().size(), 10U);
  int64_t at = 0;
  size_t entries = 0;
  for (const ParameterParts::Bucket& bucket : one.buckets()) {
    EXPECT_EQ(bucket.range.begin, at);
    EXPECT_TRUE(bucket.range.size() <= 5000 || bucket.entries.size() == 1);
    at = bucket.range.end;
    entries += bucket.entries.size();
  }
  EXPECT_EQ(at, store_.values().numel());
  EXPECT_EQ(entries, store_.entries().size());
  for (const int ranks : {2, 3, 7, 64}) {
    const ParameterParts other(store_, {ranks - 1, ranks}, Cut::anywhere, 5000);
    ASSERT_EQ(other.buckets().size(), one.buckets().size());
    for (size_t i = 0; i < one.buckets().size(); ++i) {
      EXPECT_EQ(other.buckets()[i].range, one.buckets()[i].range);
    }
  }
}

TEST_F(Parts, EveryElementBelongsToOneRank) {
  for (const Cut cut : {Cut::anywhere, Cut::at_parameters}) {
    for (const int ranks : {1, 2, 3, 4, 7, 64}) {
      std::vector<int> owners(static_cast<size_t>(store_.values().numel()), 0);
      int64_t max_elements = 0;
      int64_t largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ParameterParts parts(store_, {rank, ranks}, cut, 5000);
        max_elements = std::max(max_elements, parts.elements());
        for (const ArenaRange& range : parts.mine()) {
          for (int64_t i = range.begin; i < range.end; ++i) ++owners[static_cast<size_t>(i)];
        }
        if (cut == Cut::anywhere) continue;
        for (const ParameterStore::Entry& entry : store_.entries()) {
          const int64_t end = entry.offset + entry.shape.numel();
          largest = std::max(largest, entry.shape.numel());
          for (const ArenaRange& range : parts.mine()) {
            const bool touches = range.begin < end && entry.offset < range.end;
            EXPECT_TRUE(!touches || (range.begin <= entry.offset && end <= range.end)) << entry.name;
          }
        }
      }
      EXPECT_EQ(owners, std::vector<int>(owners.size(), 1)) << ranks;
      // Equal but for the alignment of every bucket, or for the largest parameter.
      const int64_t equal = store_.values().numel() / ranks;
      EXPECT_LE(max_elements, equal + (cut == Cut::anywhere ? 40 * 32 : largest + 16)) << ranks;
    }
  }
}

TEST_F(Parts, ASmallModelHasSomeBucketsAndALargeOneLargeBuckets) {
  EXPECT_EQ(ParameterParts::bucket_elements(1000), 16 << 10);
  EXPECT_EQ(ParameterParts::bucket_elements(16 << 20), 1 << 20);
  EXPECT_EQ(ParameterParts::bucket_elements(int64_t{1} << 40), 4 << 20);
}

}  // namespace
}  // namespace quire
