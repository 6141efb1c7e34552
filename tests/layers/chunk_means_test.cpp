// The arithmetic of the stack two_halves, against numbers by hand.
#include <gtest/gtest.h>

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
                                            .sums = Tensor::from(std::vector<double>{5, 0, 0}, {3, 1}),
                                            .segments = segments_of(batch),
                                            .batch = batch,
                                            .positions = 2});
  const std::vector<double> means{0, 10, 3, 3, 12, 0, 0, 0, 4, 8, 0, 0};
  EXPECT_EQ(got.means.value().to_vector<double>(), means);
  // N is 6; the ranges of slots that can be read.
  const std::vector<std::pair<int, int>> ranges{{1, 2}, {1, 3}, {1, 3}, {4, 4}, {4, 4}, {4, 5},
                                                {2, 2}, {2, 2}, {2, 3}, {2, 3}, {0, 0}, {0, 0}};
  std::vector<uint8_t> readable(12 * 6), found(12 * 2);
  for (size_t at = 0; at < ranges.size(); ++at) {
    for (int slot = ranges[at].first; slot < ranges[at].second; ++slot) {
      readable[at * 6 + static_cast<size_t>(slot)] = 1;
      if (slot - ranges[at].first < 2) found[at * 2 + static_cast<size_t>(slot - ranges[at].first)] = 1;
    }
  }
  EXPECT_EQ(got.readable.to_vector<uint8_t>(), readable);
  EXPECT_EQ(got.found.to_vector<uint8_t>(), found);
  EXPECT_EQ(got.first, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(got.count, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(got.sums.to_vector<double>(), (std::vector<double>{0, 32, 0}));
  tape.backward(got.means, Tensor::from(std::vector<double>{9, 9, 1, 2, 4, 9, 9, 9, 6, 8, 9, 9}, {2, 6, 1}));
  EXPECT_EQ(hidden.gradient()->value().to_vector<double>(), (std::vector<double>{.5, 1, 1, 2, 2, 0, 3, 3, 4, 4, 0, 0}));
}

}  // namespace
}  // namespace quire::test
