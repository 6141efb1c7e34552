// Registers of the state pool.
#include "layers/state/state.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"

namespace quire::test {
namespace {

using Row = std::vector<double>;

TEST(Registers, NextBecomesCurrentWithCommit) {
  StateLayout layout;
  const RegisterId id = layout.add_register("mean", {2});
  StatePool pool(layout, 3, 2, DType::f64, kCpu);
  const StateView view = pool.view(0, 3);
  pool.begin_step(batch_of({{0, 0}, {0, -1}, {-1, -1}}, {1, 1, 1}));
  view.put(id, Tensor::from(Row{1, 2, 3, 4, 5, 6}, {3, 2}));
  EXPECT_EQ(view.current(id).to_vector<double>(), (Row{0, 0, 0, 0, 0, 0}));
  pool.commit();
  // The row of padding keeps what it had.
  EXPECT_EQ(view.current(id).to_vector<double>(), (Row{1, 2, 3, 4, 0, 0}));
  pool.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {0, 1, 0}));
  EXPECT_EQ(view.current(id).to_vector<double>(), (Row{1, 2, 0, 0, 0, 0}));
  pool.commit();  // nothing was put
  EXPECT_EQ(view.current(id).to_vector<double>(), (Row{1, 2, 0, 0, 0, 0}));
}

TEST(Registers, RowBlocksAreDisjoint) {
  StateLayout layout;
  const RegisterId id = layout.add_register("mean", {1});
  StatePool pool(layout, 3, 2, DType::f64, kCpu);
  const Batch batch = batch_of({{0, 0}, {0, 0}, {0, 0}}, {0, 0, 0});
  pool.begin_step(batch);
  pool.view(0, 3).put(id, Tensor::from(Row{1, 2, 3}, {3, 1}));
  pool.commit();
  pool.begin_step(batch);
  pool.view(0, 1).put(id, Tensor::from(Row{7}, {1, 1}));
  pool.commit();
  EXPECT_EQ(pool.view(0, 3).current(id).to_vector<double>(), (Row{7, 2, 3}));
  // Row 0 begins a document and puts nothing; row 2 is flagged.
  pool.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {1, 0, 0}));
  pool.view(1, 2).put(id, Tensor::from(Row{8}, {1, 1}));
  pool.commit(std::vector<uint8_t>{0, 0, 1});
  EXPECT_EQ(pool.view(0, 3).current(id).to_vector<double>(), (Row{0, 8, 0}));
}

TEST(Registers, AreSavedAndLoaded) {
  StateLayout layout;
  const RegisterId id = layout.add_register("mean", {2});
  StatePool pool(layout, 1, 2, DType::f64, kCpu);
  pool.begin_step(batch_of({{0, 0}}, {1}));
  pool.view(0, 1).put(id, Tensor::from(Row{1, 2}, {1, 2}));
  pool.commit();
  StatePool other(layout, 1, 2, DType::f64, kCpu);
  const std::vector<NamedTensor> saved = pool.save();
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(saved[0].name, "mean.value");
  other.load([&](const std::string&) { return saved[0].tensor; });
  EXPECT_EQ(other.view(0, 1).current(id).to_vector<double>(), (Row{1, 2}));
  StatePool wider(layout, 2, 2, DType::f64, kCpu);
  EXPECT_ERROR(wider.load([&](const std::string&) { return saved[0].tensor; }), ErrorKind::checkpoint,
               "state mean.value: f64 [1, 2] is stored but this configuration wants f64 [2, 2]");
}

}  // namespace
}  // namespace quire::test
