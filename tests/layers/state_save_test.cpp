// The bytes of a row, wherever its state lies and however large it is.
#include "layers/state/state_save.h"

#include <gtest/gtest.h>

#include "tests/support/compare.h"
#include "tests/support/saved_state.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

constexpr int64_t kSavedRows = 3;

StatePool large_pool(LogPlace place) {
  StateLayout layout;
  layout.add_register("mean", {7});
  const LogGroupId group = layout.add_log_group("memory", 1301, {.place = place, .waits = true, .ages = true});
  layout.add_log(group, "keys", {2, 509});
  layout.add_log(group, "codes", {1}, DType::i32);
  return {std::move(layout), kSavedRows, 4, DType::f32, test_device()};
}

Tensor some_numbers(const Tensor& like, int64_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(like.bytes()));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 131 + i / 1000 + seed) % 127);
  const Tensor numbers = Tensor::empty(like.shape(), like.dtype());
  std::memcpy(numbers.raw(), bytes.data(), bytes.size());
  return numbers;
}

std::vector<std::byte> bytes_of_row(const Tensor& tensor, int64_t row) {
  const Tensor values = tensor.slice(0, row, row + 1);
  std::vector<std::byte> bytes(static_cast<size_t>(values.bytes()));
  values.download(bytes.data());
  return bytes;
}

TEST(StateSave, ARowIsItsPartsInPieces) {
  for (const LogPlace place : {LogPlace::device, LogPlace::host, LogPlace::file}) {
    if (place == LogPlace::file && !(test_device() == kCpu)) continue;
    SCOPED_TRACE(static_cast<int>(place));
    const StatePool pool = large_pool(place);
    int64_t seed = 0;
    for (const NamedTensor& state : pool.tensors()) {
      if (state.name.ends_with(".value") || state.name.ends_with(".ring")) {
        state.tensor.copy_from(some_numbers(state.tensor, ++seed));
      }
    }
    ASSERT_EQ(seed, 3);
    const std::vector<RowPart> parts = pool.row_parts();
    int64_t expected_bytes = 0;
    for (const RowPart& part : parts) expected_bytes += part.bytes();
    EXPECT_GT(parts.at(2).bytes(), kStatePieceBytes);
    for (int64_t row = 0; row < kSavedRows; ++row) {
      std::vector<std::byte> bytes;
      size_t largest = 0;
      pool.save_row(row, [&](std::span<const std::byte> piece) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
        largest = std::max(largest, piece.size());
      });
      EXPECT_EQ(static_cast<int64_t>(bytes.size()), expected_bytes);
      EXPECT_LE(largest, static_cast<size_t>(kStatePieceBytes));
      std::vector<std::byte> expected;
      const std::vector<NamedTensor> tensors = pool.tensors();
      for (const RowPart& part : parts) {
        const auto found = std::find_if(tensors.begin(), tensors.end(),
                                        [&](const NamedTensor& tensor) { return tensor.name == part.name; });
        const std::vector<std::byte> of_part = bytes_of_row(found->tensor, row);
        EXPECT_EQ(static_cast<int64_t>(of_part.size()), part.bytes()) << part.name;
        expected.insert(expected.end(), of_part.begin(), of_part.end());
      }
      EXPECT_TRUE(bytes == expected) << "row " << row;
    }

    StatePool other = large_pool(place);
    load_state(other, saved_state(pool));
    const std::vector<NamedTensor> a = pool.tensors();
    const std::vector<NamedTensor> b = other.tensors();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i].tensor, b[i].tensor)) << a[i].name;
  }
}

}  // namespace
}  // namespace quire::test
