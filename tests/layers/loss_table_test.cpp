#include "layers/pass/loss_table.h"

#include <gtest/gtest.h>

#include "layers/parameters/scope.h"
#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"

namespace quire::test {
namespace {

int64_t count_rows(const Batch& batch) {
  return batch.rows;
}

TEST(LossTable, NeedsACountThatTheBatchGives) {
  LossTable table;
  EXPECT_ERROR(table.add("balance", 1, nullptr), ErrorKind::internal,
               "loss term balance: it needs a count that follows from the batch alone; a loss whose count depends on "
               "what a layer computes cannot be scaled over micro-batches and ranks");
  EXPECT_EQ(table.size(), 0);
}

TEST(LossTable, RefusesANameWithTwoCounts) {
  LossTable table;
  table.add("commitment", 1, count_tokens);
  EXPECT_ERROR(table.add("commitment", 1, count_positions), ErrorKind::config,
               "loss term commitment: layers of one model take its mean over different counts; set them alike");
  EXPECT_NO_THROW(table.add("balance", 1, count_positions));
}

// Two rows of four positions: five with a token, three of padding.
TEST(LossTable, LayersShareANameAndItsCount) {
  LossTable table;
  const LossTermId first = table.add("commitment", 0.5, count_tokens);
  const LossTermId rows = table.add("balance", 2, count_rows);
  const LossTermId second = table.add("commitment", 0.25, count_tokens);
  EXPECT_EQ(first.index, second.index);
  EXPECT_NE(first.index, rows.index);
  // Each layer keeps its own weight.
  EXPECT_EQ(first.weight, 0.5);
  EXPECT_EQ(second.weight, 0.25);
  EXPECT_EQ(table.size(), 2);
  const Batch batch = batch_of({{0, 0, 0, -1}, {0, 0, -1, -1}}, {1, 1});
  const std::vector<std::pair<std::string, int64_t>> expected{{"commitment", 5}, {"balance", 2}};
  EXPECT_EQ(table.counts(batch), expected);
  EXPECT_EQ(count_positions(batch), 8);
}

// The name is that of metrics.jsonl, whatever the path of the layer that declares it.
TEST(LossTable, ScopesDeclareWithoutTheirPath) {
  ParameterStore store;
  Declarations declared;
  const Scope root(store, declared, DType::f32);
  const LossTermId a = root.child("blocks", 0).loss_term("balance", 1, count_tokens);
  const LossTermId b = root.child("blocks", 1).loss_term("balance", 1, count_tokens);
  EXPECT_EQ(a.index, b.index);
  const Batch batch = one_segment(1, 3, {1});
  EXPECT_EQ(declared.losses.counts(batch).at(0).first, "balance");
}

}  // namespace
}  // namespace quire::test
