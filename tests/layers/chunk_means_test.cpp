// The arithmetic of the stack two_halves, against numbers by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/chunk_means.h"
#include "tests/support/hand_batch.h"

namespace quire::test {
namespace {

// Chunks of two positions. Row 0 goes on with a document that remembers the chunk 10 of two, is inside a chunk and
// ends; another one begins. Row 1 begins a document and remembers nothing.
TEST(ChunkMeans, OfWhatIsRememberedAndWhatEndsHere) {
  Batch batch = batch_of({{0, 0, 0, 1, 1, 1}, {0, 0, 0, 0, -1, -1}}, {0, 1});
  batch.position = {5, 6, 7, 0, 1, 2, 0, 1, 2, 3, 9, 9};
  const std::vector<double> x{1, 2, 4, 8, 16, 32, 3, 5, 7, 9, 100, 100};
  Tape tape;
  const Variable hidden = Variable::leaf(Tensor::from(x, {2, 6, 1}));
  const ChunkMeans got = chunk_means(tape, {.x = hidden,
                                            .remembered = Tensor::from(std::vector<double>{0, 10, 0, 0}, {2, 2, 1}),
                                            .lengths = {1, 0, 0},
                                            .sums = Tensor::from(std::vector<double>{5, 1, 0, 0, 0, 0}, {3, 2}),
                                            .segments = segments_of(batch),
                                            .batch = batch,
                                            .positions = 2});
  const std::vector<double> means{0, 10, 3, 3, 12, 0, 0, 0, 4, 8, 0, 0};
  EXPECT_EQ(got.means.value().to_vector<double>(), means);
  const std::vector<int32_t> readable{1, 2, 1, 3, 1, 3, 4, 4, 4, 4, 4, 5, 8, 8, 8, 8, 8, 9, 8, 9, 0, 0, 0, 0};
  EXPECT_EQ(got.readable.to_vector<int32_t>(), readable);
  EXPECT_EQ(got.first, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(got.count, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(got.sums.to_vector<double>(), (std::vector<double>{0, 0, 32, 1, 0, 0}));
  tape.backward(got.means, Tensor::from(std::vector<double>{9, 9, 1, 2, 4, 9, 9, 9, 6, 8, 9, 9}, {2, 6, 1}));
  EXPECT_EQ(hidden.gradient()->value().to_vector<double>(), (std::vector<double>{.5, 1, 1, 2, 2, 0, 3, 3, 4, 4, 0, 0}));
}

TEST(ChunkMeans, TheTwoBestAreChosen) {
  const Tensor means = Tensor::from(std::vector<double>{0, 0, 1, 0, 0, 2, 1, 0, 3, 3}, {1, 5, 2});
  const Tensor queries = Tensor::from(std::vector<double>{1, 0, 1, 0, 0, 1, -1, 0, 1, 1}, {1, 5, 2});
  const Tensor readable = Tensor::from(std::vector<int32_t>{0, 4, 1, 2, 0, 5, 0, 4, 3, 3}, {1, 5, 2});
  const Tensor chosen = best_two(queries, means, readable);
  // Ties go to the older one, and the best one stands last.
  EXPECT_EQ(chosen.to_vector<int32_t>(), (std::vector<int32_t>{3, 1, -1, 1, 2, 4, 2, 0, -1, -1}));
  const std::vector<double> weights = weights_of(queries, means, chosen);
  const double better = 1 / (1 + std::exp(-1 / std::sqrt(2.0)));
  const std::vector<double> wanted{.5, .5, 0, 1, 1 - better, better, .5, .5, 0, 0};
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(weights[i], wanted[i], 1e-15) << i;
}

}  // namespace
}  // namespace quire::test
