// Tests of attention to stored blocks beyond the table of op cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/block_attention.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

// Whatever earlier calls have left in the memory that a call works in.
TEST(StoredAttention, EntriesThatNameNothingGiveNothing) {
  constexpr int64_t kChosen = 5, kLength = 4, kFeatures = 8;
  RandomTensors random(2);
  ops::StoredAttentionInputs in;
  in.q = random.normal({1, 3, 1, kFeatures});
  in.keys = random.normal({6, kLength, 1, kFeatures});
  const Tensor values = random.normal({6, kLength, 1, kFeatures});
  const auto run = [&](const Tensor& of_values, const std::vector<int32_t>& slot) {
    in.values = of_values;
    in.slot = Tensor::from(slot, {1, 3, 1, static_cast<int64_t>(slot.size()) / 3});
    const Tensor out = Tensor::empty({1, 3, 1, kFeatures}, DType::f64);
    ops::stored_attention(out, Tensor::empty({1, 1, 3}, DType::f64), in);
    return out;
  };
  for (const bool landmarks : {false, true}) {
    in.landmarks = landmarks;
    const Tensor expected = run(values, {4, 1, 5});
    Tensor large = Tensor::empty_like(values);
    std::fill_n(large.data<double>(), large.numel(), std::numeric_limits<double>::infinity());
    run(large, std::vector<int32_t>(3 * kChosen, 2));
    const Tensor got = run(values, {-1, 4, -1, -1, -1, 1, -1, -1, -1, -1, -1, -1, -1, -1, 5});
    EXPECT_TRUE(same_bits(got, expected));
  }
}

}  // namespace
}  // namespace quire::test
