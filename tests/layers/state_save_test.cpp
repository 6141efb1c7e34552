// The bytes of a row, wherever its state lies and however large it is.
#include "layers/state/state_save.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
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

// Entries of a row from the oldest one that can be read.
std::vector<float> readable(const StatePool& pool, int64_t row) {
  std::map<std::string, Tensor> of;
  for (const NamedTensor& tensor : pool.tensors()) of[tensor.name] = tensor.tensor;
  const Tensor ring = of.at("memory.keys.ring").select(0, row);
  const int64_t head = of.at("memory.head").to_vector<int64_t>().at(static_cast<size_t>(row));
  const int64_t length = of.at("memory.length").to_vector<int64_t>().at(static_cast<size_t>(row));
  const std::vector<float> all = ring.to_vector<float>();
  const int64_t slots = ring.dim(0), width = ring.numel() / slots;
  std::vector<float> values;
  for (int64_t i = 0; i < length; ++i) {
    const auto slot = all.begin() + (head - length + i + slots) % slots * width;
    values.insert(values.end(), slot, slot + width);
  }
  return values;
}

// A row goes back to where it was, in a ring that is not full, that has wrapped and that later entries overwrite.
TEST(StateSave, WhatCanBeReadComesBack) {
  StateLayout layout;
  layout.add_register("mean", {3});
  const LogGroupId group = layout.add_log_group("memory", 5, {.ages = true});
  const LogId keys = layout.add_log(group, "keys", {2});
  StatePool pool(std::move(layout), 2, 2, DType::f32, test_device());
  float next = 0;
  const auto step = [&](bool starts) {
    pool.begin_step(one_segment(2, 2, std::vector<uint8_t>(2, starts ? 1 : 0)));
    std::vector<float> values(8);
    for (float& value : values) value = ++next;
    pool.view(0, 2).append(keys, Tensor::from(values, {2, 2, 2}, test_device()));
    pool.commit();
  };
  for (const int before : {1, 2, 3, 4, 7}) {
    SCOPED_TRACE(before);
    for (int i = 0; i < before; ++i) step(i == 0);
    const std::vector<float> of_row = readable(pool, 1);
    ASSERT_EQ(of_row.size(), static_cast<size_t>(2 * std::min(5, 2 * before)));
    const SavedState saved = saved_state(pool, RowExtent::readable);
    const auto bytes = static_cast<int64_t>(saved.rows[1].size());
    EXPECT_LT(bytes, pool.row_bytes(1, RowExtent::whole));
    EXPECT_EQ(bytes, pool.row_bytes(1, RowExtent::readable));
    for (int i = 0; i < 3; ++i) step(false);
    ASSERT_NE(readable(pool, 1), of_row);
    load_state(pool, saved);
    EXPECT_EQ(readable(pool, 1), of_row);
  }
}

}  // namespace
}  // namespace quire::test
