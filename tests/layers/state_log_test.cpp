// Logs of the state pool.
#include "layers/state/state_pool.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"
#include "tests/support/saved_state.h"

namespace quire::test {
namespace {

// [R, T, 1]: row r holds first + 100 r, first + 100 r + 1, ...
Tensor numbered(int64_t rows, int64_t tokens, double first) {
  std::vector<double> values;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < tokens; ++t) values.push_back(first + static_cast<double>(100 * r + t));
  }
  return Tensor::from(values, {rows, tokens, 1});
}

std::vector<double> row_of(const Tensor& tensor, int64_t row) {
  return tensor.select(0, row).to_vector<double>();
}

using Row = std::vector<double>;

class Logs : public ::testing::Test {
 protected:
  static constexpr int64_t kLength = 4;

  void make(int64_t rows, int64_t segment, bool filled = false) {
    StateLayout layout;
    log_ = layout.add_log(layout.add_log_group("log", kLength, {.filled_with_zeros = filled}), "values", {1});
    layout_ = layout;
    rows_ = rows;
    pool_ = std::make_unique<StatePool>(layout, rows, segment, DType::f64, kCpu);
  }
  StateView view() { return pool_->view(0, rows_); }
  // One whole step that appends first, first + 1, ...
  void step(const Batch& batch, double first) {
    pool_->begin_step(batch);
    view().append(log_, numbered(batch.rows, batch.length, first));
    pool_->commit();
  }
  Row carried(int64_t row) { return row_of(view().gather(log_), row); }
  int64_t length(int64_t row) { return view().lengths(log_.group)[static_cast<size_t>(row)]; }

  StateLayout layout_;
  LogId log_;
  int64_t rows_ = 0;
  std::unique_ptr<StatePool> pool_;
};

TEST_F(Logs, GatherIsOrderedByAgeAndWrapsAround) {
  make(1, 3);
  double next = 1;
  for (int round = 0; round < 12; ++round) {
    step(batch_of({{0, 0, 0}}, {0}), next);
    next += 3;
    const Row expected = round == 0 ? Row{0, 1, 2, 3} : Row{next - 4, next - 3, next - 2, next - 1};
    EXPECT_EQ(carried(0), expected) << "round " << round;
    EXPECT_EQ(length(0), round == 0 ? 3 : 4);
  }
}

TEST_F(Logs, ASegmentMayBeLongerThanTheLog) {
  make(1, 7);
  step(batch_of({{0, 0, 0, 0, 0, 0, 0}}, {1}), 1);
  EXPECT_EQ(carried(0), (Row{4, 5, 6, 7}));
  step(batch_of({{0, 0, 0, 0, 0, 0, 0}}, {0}), 8);
  EXPECT_EQ(carried(0), (Row{11, 12, 13, 14}));
}

TEST_F(Logs, AppendsAreInvisibleUntilCommit) {
  make(1, 3);
  step(batch_of({{0, 0, 0}}, {1}), 1);
  step(batch_of({{0, 0, 0}}, {0}), 4);
  pool_->begin_step(batch_of({{0, 0, 0}}, {0}));
  const Row before = carried(0);
  view().append(log_, numbered(1, 3, 7));
  EXPECT_EQ(carried(0), before);  // nothing readable was overwritten
  EXPECT_EQ(length(0), 4);
  pool_->commit();
  EXPECT_EQ(carried(0), (Row{6, 7, 8, 9}));
}

TEST_F(Logs, PaddingIsNotWritten) {
  make(3, 3);
  step(batch_of({{0, 0, 0}, {0, -1, -1}, {-1, -1, -1}}, {1, 1, 1}), 1);
  EXPECT_EQ(carried(0), (Row{0, 1, 2, 3}));
  EXPECT_EQ(carried(1), (Row{0, 0, 0, 101}));
  EXPECT_EQ(carried(2), (Row{0, 0, 0, 0}));
  EXPECT_EQ(length(2), 0);
  step(batch_of({{0, 0, -1}, {0, 0, 0}, {0, -1, -1}}, {0, 0, 0}), 4);
  EXPECT_EQ(carried(0), (Row{2, 3, 4, 5}));
  EXPECT_EQ(carried(1), (Row{101, 104, 105, 106}));
  EXPECT_EQ(carried(2), (Row{0, 0, 0, 204}));
}

TEST_F(Logs, ARowIsResetAlone) {
  make(2, 2);
  step(batch_of({{0, 0}, {0, 0}}, {1, 1}), 1);
  pool_->begin_step(batch_of({{0, 0}, {0, 0}}, {0, 1}));
  EXPECT_EQ(carried(0), (Row{0, 0, 1, 2}));
  EXPECT_EQ(carried(1), (Row{0, 0, 0, 0}));
  view().append(log_, numbered(2, 2, 3));
  pool_->commit();
  EXPECT_EQ(carried(0), (Row{1, 2, 3, 4}));
  EXPECT_EQ(carried(1), (Row{0, 0, 103, 104}));
}

TEST_F(Logs, ALaterDocumentInTheRowReplacesWhatWasCarried) {
  make(1, 4);
  step(batch_of({{0, 0, 0, 0}}, {1}), 1);
  step(batch_of({{0, 0, 1, 1}}, {0}), 5);
  EXPECT_EQ(carried(0), (Row{0, 0, 7, 8}));
  EXPECT_EQ(length(0), 2);
  step(batch_of({{0, 0, 0, 0}}, {0}), 9);
  EXPECT_EQ(carried(0), (Row{9, 10, 11, 12}));
}

TEST_F(Logs, FilledLogsHoldZerosBeforeADocument) {
  make(2, 3, true);
  EXPECT_EQ(length(0), kLength);
  EXPECT_EQ(carried(0), (Row{0, 0, 0, 0}));
  step(batch_of({{0, 0, 0}, {0, 0, 0}}, {1, 1}), 1);
  step(batch_of({{0, 0, 0}, {0, 0, 0}}, {0, 0}), 4);
  EXPECT_EQ(carried(1), (Row{103, 104, 105, 106}));
  // Row 0 begins a document with the step, row 1 inside it: both carry zeros before it.
  step(batch_of({{0, -1, -1}, {0, 1, 1}}, {1, 0}), 7);
  EXPECT_EQ(length(0), kLength);
  EXPECT_EQ(length(1), kLength);
  EXPECT_EQ(carried(0), (Row{0, 0, 0, 7}));
  EXPECT_EQ(carried(1), (Row{0, 0, 108, 109}));
}

TEST_F(Logs, FlaggedRowsAreEmptied) {
  make(2, 2);
  step(batch_of({{0, 0}, {0, 0}}, {1, 1}), 1);
  pool_->begin_step(batch_of({{0, 0}, {0, 0}}, {0, 0}));
  view().append(log_, numbered(2, 2, 3));
  pool_->commit(std::vector<uint8_t>{1, 0});
  EXPECT_EQ(carried(0), (Row{0, 0, 0, 0}));
  EXPECT_EQ(carried(1), (Row{101, 102, 103, 104}));
}

TEST_F(Logs, WhatAStepDoesNotCommitIsForgotten) {
  make(1, 2);
  step(batch_of({{0, 0}}, {1}), 1);
  pool_->begin_step(batch_of({{0, 0}}, {0}));
  view().append(log_, numbered(1, 2, 50));
  // The step failed. The next one appends nothing.
  pool_->begin_step(batch_of({{0, 0}}, {0}));
  pool_->commit();
  EXPECT_EQ(carried(0), (Row{0, 0, 1, 2}));
  // Neither does a row of padding hand its append on to the next step.
  pool_->begin_step(batch_of({{-1, -1}}, {0}));
  view().append(log_, numbered(1, 2, 60));
  pool_->commit();
  pool_->begin_step(batch_of({{0, 0}}, {0}));
  pool_->commit();
  EXPECT_EQ(carried(0), (Row{0, 0, 1, 2}));
}

TEST_F(Logs, RowBlocksAreDisjoint) {
  make(3, 2);
  pool_->begin_step(batch_of({{0, 0}, {0, 0}, {0, -1}}, {1, 1, 1}));
  pool_->view(1, 3).append(log_, numbered(2, 2, 1));
  EXPECT_EQ(pool_->view(1, 3).last_segment(1).count, 1);
  pool_->commit();
  EXPECT_EQ(carried(0), (Row{0, 0, 0, 0}));
  EXPECT_EQ(carried(1), (Row{0, 0, 1, 2}));
  EXPECT_EQ(carried(2), (Row{0, 0, 0, 101}));
  EXPECT_EQ(length(0), 0);
}

TEST_F(Logs, SavedStateGoesOnTheSame) {
  make(2, 3);
  step(batch_of({{0, 0, 0}, {0, 0, -1}}, {1, 1}), 1);
  step(batch_of({{0, 0, 0}, {0, 0, 0}}, {0, 0}), 4);
  StatePool other(layout_, 2, 3, DType::f64, kCpu);
  load_state(other, saved_state(*pool_));
  for (StatePool* pool : {pool_.get(), &other}) {
    pool->begin_step(batch_of({{0, 0, -1}, {0, 0, 0}}, {0, 1}));
    pool->view(0, 2).append(log_, numbered(2, 3, 7));
    pool->commit();
  }
  for (int64_t row = 0; row < 2; ++row) EXPECT_EQ(row_of(other.view(0, 2).gather(log_), row), carried(row));
  EXPECT_EQ(carried(0), (Row{5, 6, 7, 8}));
}

TEST_F(Logs, RefusesStateThatDoesNotFit) {
  make(2, 3);
  SavedState saved = saved_state(*pool_);
  StatePool longer(layout_, 2, 4, DType::f64, kCpu);
  EXPECT_ERROR(load_state(longer, saved), ErrorKind::checkpoint,
               "state log.values.ring: rows of f64 [7, 1] are stored but this configuration wants f64 [8, 1]");
  StatePool narrow(layout_, 2, 3, DType::f32, kCpu);
  EXPECT_ERROR(load_state(narrow, saved), ErrorKind::checkpoint, "wants f32");
  const auto set = [&](const std::string& name, const std::vector<int64_t>& values) {
    for (NamedTensor& counts : saved.counts) {
      if (counts.name == name) counts.tensor = Tensor::from(values, {2});
    }
  };
  set("log.length", {0, kLength + 1});
  EXPECT_ERROR(load_state(*pool_, saved), ErrorKind::checkpoint, "row 1 has head 0 and length 5 for 7 slots");
  set("log.length", {0, 0});
  set("log.head", {-1, 0});
  EXPECT_ERROR(load_state(*pool_, saved), ErrorKind::checkpoint, "row 0 has head -1");
}

TEST_F(Logs, RefusesBatchesOfOtherSizes) {
  make(2, 3);
  EXPECT_ERROR(pool_->begin_step(batch_of({{0, 0, 0}}, {1})), ErrorKind::internal, "a batch of 1 rows for a pool of 2");
  EXPECT_ERROR(pool_->begin_step(batch_of({{0, 0, 0, 0}, {0, 0, 0, 0}}, {1, 1})), ErrorKind::internal,
               "4 positions for a pool of 3");
  StateLayout layout;
  EXPECT_ERROR(layout.add_log_group("empty", 0), ErrorKind::internal, "state empty: length 0");
}

// Entries are rounded when they are stored, and the pool needs half the memory.
TEST(LogsOfAnotherType, StoreAndRead) {
  const auto pool_of = [](std::optional<DType> dtype) {
    StateLayout layout;
    layout.add_log(layout.add_log_group("log", 4), "values", {3}, dtype);
    return StatePool(layout, 2, 5, DType::f32, kCpu);
  };
  const Tensor values = RandomTensors(1).normal({2, 5, 3}, 1, 0, DType::f32);
  StatePool half = pool_of(DType::bf16);
  StatePool whole = pool_of(std::nullopt);
  EXPECT_EQ(2 * half.bytes(), whole.bytes());
  const LogId log{0, {0}};
  for (StatePool* pool : {&half, &whole}) {
    pool->begin_step(one_segment(2, 5, {1, 1}));
    pool->view(0, 2).append(log, values);
    pool->commit();
  }
  const std::vector<float> got = half.view(0, 2).gather(log).to_vector<float>();
  const std::vector<float> exact = whole.view(0, 2).gather(log).to_vector<float>();
  ASSERT_EQ(got.size(), exact.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], static_cast<float>(bfloat16(exact[i])));
  EXPECT_EQ(half.view(0, 2).ring(log).dtype(), DType::f32);

  const SavedState saved = saved_state(half);
  EXPECT_EQ(saved.parts.back().dtype, DType::bf16);
  StatePool loaded = pool_of(DType::bf16);
  load_state(loaded, saved);
  EXPECT_EQ(loaded.view(0, 2).gather(log).to_vector<float>(), got);
  EXPECT_ERROR(load_state(whole, saved), ErrorKind::checkpoint,
               "state log.values.ring: rows of bf16 [9, 3] are stored but this configuration wants f32 [9, 3]; "
               "--drop-state starts without carried state");
}

}  // namespace
}  // namespace quire::test
