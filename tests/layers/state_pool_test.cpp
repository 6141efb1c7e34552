#include <gtest/gtest.h>

#include "layers/state.h"
#include "tests/support/compare.h"
#include "tests/support/document_rows.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

constexpr int64_t kLength = 3;  // of the readable part of the log, and of a step

// Two rows; one register and one log of single numbers.
class StatePoolTest : public ::testing::Test {
 protected:
  static StateLayout layout(bool filled) {
    StateLayout layout;
    layout.add_register("count", {1});
    layout.add_log("tokens", {1}, kLength, filled);
    return layout;
  }
  explicit StatePoolTest(bool filled = false) : pool(layout(filled), 2, kLength, DType::f64, kCpu) {}

  // Writes the tokens themselves, and their number beside the register.
  void write(const StateView& view, const Batch& batch, double count) {
    const std::vector<double> tokens(batch.tokens.begin(), batch.tokens.end());
    view.append(log, Tensor::from(tokens, {batch.rows, batch.length, 1}));
    view.put(number, Tensor::from(std::vector<double>(static_cast<size_t>(batch.rows), count), {batch.rows, 1}));
  }
  void step(const Batch& batch, double count) {
    pool.begin_step(batch);
    write(pool.view(0, 2), batch, count);
    pool.commit();
  }
  std::vector<double> entries() { return pool.view(0, 2).gather(log).to_vector<double>(); }
  std::vector<int64_t> lengths() { return pool.view(0, 2).lengths(log); }
  std::vector<double> numbers() { return pool.view(0, 2).current(number).to_vector<double>(); }

  RegisterId number{0};
  LogId log{0};
  StatePool pool;
};

class FilledStatePoolTest : public StatePoolTest {
 protected:
  FilledStatePoolTest() : StatePoolTest(true) {}
};

using Values = std::vector<double>;
using Lengths = std::vector<int64_t>;

// Row 0: one document over three steps; row 1: a document of two positions, then one of four.
std::vector<Batch> batches(Pack pack) {
  return cut({{{1, 2, 3, 4, 5, 6, 7, 8}}, {{11, 12, 13}, {21, 22, 23, 24, 25}}}, kLength, pack);
}

TEST_F(StatePoolTest, WhatAStepWritesIsReadableAfterItsCommit) {
  const std::vector<Batch> steps = batches(Pack::pad);
  pool.begin_step(steps[0]);
  write(pool.view(0, 2), steps[0], 5);
  EXPECT_EQ(lengths(), (Lengths{0, 0}));
  EXPECT_EQ(numbers(), (Values{0, 0}));
  pool.commit();
  EXPECT_EQ(lengths(), (Lengths{3, 2}));
  EXPECT_EQ(entries(), (Values{1, 2, 3, 0, 11, 12}));
  EXPECT_EQ(numbers(), (Values{5, 5}));

  pool.begin_step(steps[1]);  // row 1 turns to a new document
  EXPECT_EQ(lengths(), (Lengths{3, 0}));
  EXPECT_EQ(numbers(), (Values{5, 0}));
  write(pool.view(0, 2), steps[1], 6);
  EXPECT_EQ(entries(), (Values{1, 2, 3, 0, 0, 0})) << "appending moved what can be read";
  pool.commit();
  EXPECT_EQ(entries(), (Values{4, 5, 6, 21, 22, 23}));
  step(steps[2], 7);
  EXPECT_EQ(entries(), (Values{5, 6, 7, 22, 23, 24}));
}

TEST_F(StatePoolTest, OnlyTheLastSegmentOfARowIsWritten) {
  const std::vector<Batch> steps = batches(Pack::concat);
  step(steps[0], 1);
  EXPECT_EQ(lengths(), (Lengths{3, 1}));
  EXPECT_EQ(entries(), (Values{1, 2, 3, 0, 0, 21}));
}

TEST_F(StatePoolTest, RowsThatAreNotWrittenKeepWhatTheyHave) {
  const std::vector<Batch> steps = batches(Pack::pad);
  step(steps[0], 1);
  pool.begin_step(steps[1]);
  write(pool.view(1, 2), steps[1].row_block(1, 2), 2);  // row 0 sits this step out
  pool.commit();
  EXPECT_EQ(entries(), (Values{1, 2, 3, 21, 22, 23}));
  EXPECT_EQ(numbers(), (Values{1, 2}));

  Batch empty = steps[2];
  std::fill(empty.segment.begin(), empty.segment.end(), -1);
  step(empty, 9);
  EXPECT_EQ(entries(), (Values{1, 2, 3, 21, 22, 23}));
  EXPECT_EQ(numbers(), (Values{1, 2}));
}

TEST_F(StatePoolTest, AStepWithoutCommitLeavesNothingBehind) {
  const std::vector<Batch> steps = batches(Pack::pad);
  step(steps[0], 1);
  pool.begin_step(steps[1]);
  write(pool.view(0, 2), steps[1], 2);
  pool.begin_step(steps[1]);  // the step above failed; this one writes nothing
  pool.commit();
  EXPECT_EQ(lengths(), (Lengths{3, 0}));
  EXPECT_EQ(entries(), (Values{1, 2, 3, 0, 0, 0}));
  EXPECT_EQ(numbers(), (Values{1, 0}));
}

TEST_F(StatePoolTest, ClearedRowsAreEmptied) {
  const std::vector<Batch> steps = batches(Pack::pad);
  pool.begin_step(steps[0]);
  write(pool.view(0, 2), steps[0], 3);
  const std::vector<uint8_t> cleared{1, 0};
  pool.commit(cleared);
  EXPECT_EQ(lengths(), (Lengths{0, 2}));
  EXPECT_EQ(numbers(), (Values{0, 3}));
}

TEST_F(FilledStatePoolTest, ADocumentBeginsWithZeroEntries) {
  const std::vector<Batch> steps = batches(Pack::pad);
  EXPECT_EQ(lengths(), (Lengths{3, 3}));
  step(steps[0], 1);
  EXPECT_EQ(entries(), (Values{1, 2, 3, 0, 11, 12}));
  pool.begin_step(steps[1]);
  EXPECT_EQ(lengths(), (Lengths{3, 3}));
  EXPECT_EQ(entries(), (Values{1, 2, 3, 0, 0, 0}));
}

TEST_F(StatePoolTest, LoadsWhatItSavedAndNothingElse) {
  const std::vector<Batch> steps = batches(Pack::pad);
  step(steps[0], 4);
  std::map<std::string, Tensor> saved;
  for (const NamedTensor& tensor : pool.save()) saved[tensor.name] = clone(tensor.tensor);
  const auto get = [&](const std::string& name) { return saved.at(name); };
  StatePool other(layout(false), 2, kLength, DType::f64, kCpu);
  other.load(get);
  EXPECT_EQ(other.view(0, 2).gather(log).to_vector<double>(), entries());
  EXPECT_EQ(other.view(0, 2).current(number).to_vector<double>(), numbers());

  StatePool longer(layout(false), 2, kLength + 1, DType::f64, kCpu);
  EXPECT_ERROR(longer.load(get), ErrorKind::checkpoint, "state tokens.ring");
  saved["tokens.length"] = Tensor::from(std::vector<int64_t>{3, 4}, {2});
  EXPECT_ERROR(other.load(get), ErrorKind::checkpoint, "row 1 has head 2 and length 4");
}

TEST_F(StatePoolTest, ABatchHasTheRowsOfThePool) {
  EXPECT_ERROR(pool.begin_step(batches(Pack::pad)[0].row_block(0, 1)), ErrorKind::internal, "a batch of 1 rows");
}

}  // namespace
}  // namespace quire::test
