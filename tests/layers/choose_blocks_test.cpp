#include "layers/carried/choose_blocks.h"

#include <gtest/gtest.h>

#include "autograd/functions/rows.h"
#include "autograd/functions/views.h"
#include "kernels/elementwise.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

Tensor scores_of(const Tensor& integers) {
  const std::vector<int32_t> values = integers.to_vector<int32_t>();
  return Tensor::from(std::vector<float>(values.begin(), values.end()), integers.shape());
}

// Scores of few values, so that many are equal.
TEST(ChooseBlocks, InPiecesAsInOne) {
  constexpr int64_t kStored = 23, kCount = 28, kChosen = 4;
  RandomTensors random(1);
  const Tensor scores = scores_of(random.integers({2, 3, 2, kCount}, 0, 4));
  const Tensor mask = random.flags({2, 3, 1, kCount});
  const auto part = [](const Tensor& of, const BlockPiece& piece) {
    Tape tape(false);
    return slice(tape, Variable::constant(of), -1, piece.first, piece.last).value();
  };
  const std::vector<int32_t> expected = top_k(scores, kChosen, mask).to_vector<int32_t>();
  for (const int64_t size : {1, 3, 7, 22, 23, 100}) {
    int64_t largest = 0;
    const Tensor got = choose_blocks(
        {.stored = kStored, .count = kCount, .top_k = kChosen, .piece = size},
        [&](const BlockPiece& piece) {
          largest = std::max(largest, piece.size());
          return part(scores, piece);
        },
        [&](const BlockPiece& piece) {
          const Tensor copy = Tensor::empty({2, 3, 1, piece.size()}, DType::u8);
          ops::copy(copy, mask.slice(3, piece.first, piece.last));
          return copy;
        });
    EXPECT_EQ(got.to_vector<int32_t>(), expected) << size;
    EXPECT_LE(largest, std::max(size, int64_t{1}) + kCount - kStored);
  }
}

}  // namespace
}  // namespace quire::test
