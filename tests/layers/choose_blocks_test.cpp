#include "layers/carried/choose_blocks.h"

#include <gtest/gtest.h>

#include "autograd/functions/rows.h"
#include "autograd/functions/views.h"
#include "core/device.h"
#include "kernels/elementwise.h"
#include "layers/mixers/landmark_heads.h"
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
        [&](const BlockPiece& piece) { return packed(mask.slice(3, piece.first, piece.last)); });
    EXPECT_EQ(got.to_vector<int32_t>(), expected) << size;
    EXPECT_LE(largest, std::max(size, int64_t{1}) + kCount - kStored);
  }
}

// Landmarks that occur several times, so that many are equal. A row has none of the oldest blocks.
TEST(ChooseBlocks, OfLandmarksInPiecesAsInOne) {
  constexpr int64_t kRows = 2, kTokens = 5, kHeads = 4, kBlocks = 46;
  RandomTensors random(2);
  const Tensor q = random.normal({kRows, kTokens, kHeads, 3}), once = random.normal({kRows, kBlocks / 2, 2, 3});
  const Tensor landmarks = Tensor::empty({kRows, kBlocks, 2, 3}, DType::f64);
  ops::copy(landmarks.slice(1, 0, kBlocks / 2), once);
  ops::copy(landmarks.slice(1, kBlocks / 2, kBlocks), once);
  std::vector<uint8_t> has(kRows * kBlocks, 1), takes_part(kRows * kTokens, 1);
  std::fill_n(has.begin(), 9, 0);
  std::fill_n(takes_part.end() - 2, 2, 0);
  const Tensor exists = Tensor::from(has, {kRows, 1, 1, kBlocks});
  const Tensor reads = Tensor::from(takes_part, {kRows, 1, kTokens, 1});
  for (const BlockSelection selection : {BlockSelection::token, BlockSelection::head}) {
    for (const BlockComparison compare : {BlockComparison::shares, BlockComparison::logits}) {
      SharedChoice choice{selection, compare, 0.7, 6};
      const std::vector<int32_t> expected = choice(q, landmarks, exists, reads).to_vector<int32_t>();
      for (const int64_t size : {1, 3, 8, 22, 45, 46}) {
        choice.piece = size;
        EXPECT_EQ(choice(q, landmarks, exists, reads).to_vector<int32_t>(), expected) << size;
      }
    }
  }
}

// Beside the landmarks themselves no memory grows with the number of blocks.
TEST(ChooseBlocks, MemoryOfAChoiceByLandmarksIsThatOfAPiece) {
  const auto peak = [](BlockSelection selection, int64_t blocks) {
    RandomTensors random(3);
    const Tensor q = random.normal({1, 16, 4, 8}), landmarks = random.normal({1, blocks, 2, 8});
    const Tensor exists = random.flags({1, 1, 1, blocks}), reads = random.flags({1, 1, 16, 1});
    const SharedChoice choice{selection, BlockComparison::shares, 1, 4, 32};
    Allocator& allocator = device_backend(DeviceKind::cpu).allocator();
    const int64_t before = allocator.stats().bytes_in_use;
    allocator.reset_peak();
    choice(q, landmarks, exists, reads);
    return allocator.stats().peak_bytes - before;
  };
  for (const BlockSelection selection : {BlockSelection::token, BlockSelection::head}) {
    peak(selection, 64);  // products take their workspace once
    EXPECT_EQ(peak(selection, 64), peak(selection, 512));
  }
}

}  // namespace
}  // namespace quire::test
