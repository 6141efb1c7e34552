// Registers of the state pool.
#include "layers/state/state_pool.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"
#include "tests/support/saved_state.h"

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
  const SavedState saved = saved_state(pool);
  ASSERT_EQ(saved.parts.size(), 1U);
  EXPECT_EQ(saved.parts[0].name, "mean.value");
  ASSERT_EQ(saved.counts.size(), 1U);
  EXPECT_EQ(saved.counts[0].name, "mean.empty");
  load_state(other, saved);
  EXPECT_EQ(other.view(0, 1).current(id).to_vector<double>(), (Row{1, 2}));
  StatePool more(layout, 2, 2, DType::f64, kCpu);
  EXPECT_ERROR(load_state(more, saved), ErrorKind::checkpoint,
               "state mean.empty: u8 [1] is stored but this configuration wants u8 [2]");
}

TEST(Registers, StateOfAnotherConfigurationIsRefused) {
  const auto pool_of = [](const std::vector<std::pair<const char*, int64_t>>& registers) {
    StateLayout layout;
    for (const auto& [name, size] : registers) layout.add_register(name, {size});
    return StatePool(layout, 1, 2, DType::f64, kCpu);
  };
  const SavedState saved = saved_state(pool_of({{"mean", 2}, {"count", 1}}));
  const auto refused = [&](const std::vector<std::pair<const char*, int64_t>>& registers, const char* message) {
    StatePool pool = pool_of(registers);
    EXPECT_ERROR(load_state(pool, saved), ErrorKind::checkpoint, message);
  };
  refused({{"mean", 3}, {"count", 1}}, "mean.value: rows of f64 [2] are stored but this configuration wants f64 [3]");
  refused({{"mean", 2}}, "count.value: is stored but this configuration has none of it; --drop-state");
  refused({{"mean", 2}, {"count", 1}, {"sum", 1}}, "sum.value: this configuration wants it but it is not stored");
  refused({{"count", 1}, {"mean", 2}}, "mean.value: is stored where this configuration has count.value");
}

TEST(Registers, HaveATypeOfTheirOwn) {
  StateLayout layout;
  const RegisterId place = layout.add_register("place", {1}, {.dtype = DType::i64});
  const RegisterId mean = layout.add_register("mean", {1}, {.wide = true});
  StatePool pool(layout, 2, 1, DType::bf16, kCpu);
  const StateView view = pool.view(0, 2);
  EXPECT_EQ(view.current(mean).dtype(), DType::f32);
  pool.begin_step(batch_of({{0}, {0}}, {1, 1}));
  const std::vector<int64_t> large{int64_t{1} << 60, 3};
  view.put(place, Tensor::from(large, {2, 1}));
  pool.commit();
  EXPECT_EQ(view.current(place).to_vector<int64_t>(), large);
  EXPECT_ERROR(layout.add_register("both", {1}, {.dtype = DType::f32, .wide = true}), ErrorKind::internal,
               "state both: a type and wide contradict each other");
}

using Flags = std::vector<uint8_t>;

// Until something was committed a row is empty; beginning a document and clearing make it so again.
TEST(Registers, KnowWhichRowsAreEmpty) {
  StateLayout layout;
  const RegisterId id = layout.add_register("mean", {1});
  StatePool pool(layout, 3, 2, DType::f64, kCpu);
  const StateView view = pool.view(0, 3);
  const Tensor values = Tensor::from(Row{1, 2, 3}, {3, 1});
  pool.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {1, 1, 1}));
  view.put(id, values);
  EXPECT_EQ(view.is_empty(id), (Flags{1, 1, 1}));
  pool.commit();
  EXPECT_EQ(view.is_empty(id), (Flags{0, 0, 0}));

  std::map<std::string, Tensor> saved;
  for (const NamedTensor& tensor : pool.tensors()) saved[tensor.name] = tensor.tensor;
  EXPECT_EQ(saved.at("mean.empty").to_vector<uint8_t>(), (Flags{0, 0, 0}));

  pool.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {0, 1, 0}));
  EXPECT_EQ(view.is_empty(id), (Flags{0, 1, 0}));
  view.put(id, values);
  pool.commit(std::vector<uint8_t>{0, 0, 1});
  EXPECT_EQ(view.is_empty(id), (Flags{0, 0, 1}));
  EXPECT_EQ(view.current(id).to_vector<double>(), (Row{1, 2, 0}));

  StatePool other(layout, 3, 2, DType::f64, kCpu);
  load_state(other, saved_state(pool));
  other.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {0, 0, 0}));
  EXPECT_EQ(other.view(0, 3).is_empty(id), (Flags{0, 0, 1}));
}

TEST(Registers, EachSegmentIsHandedItsInitialState) {
  StateLayout layout;
  const RegisterId id = layout.add_register("mean", {1});
  StatePool pool(layout, 4, 4, DType::f64, kCpu);
  const StateView view = pool.view(0, 4);
  const auto begin = [&](const std::vector<std::vector<int32_t>>& segments, const Flags& starts) {
    pool.begin_step(batch_of(segments, starts));
  };
  begin({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, {1, 1, 1, 1});
  EXPECT_EQ(view.initial(id).to_vector<double>(), (Row{0, 0, 0, 0}));
  view.put_by_segment(id, Tensor::from(Row{1, 2, 3, 4}, {4, 1}));
  pool.commit();
  EXPECT_EQ(view.initial(id).to_vector<double>(), (Row{1, 2, 3, 4}));

  begin({{0, 1, 1, 2}, {0, 0, -1, -1}, {-1, -1, -1, -1}, {0, 0, 1, -1}}, {0, 1, 0, 0});
  EXPECT_EQ(view.initial(id).to_vector<double>(), (Row{1, 0, 0, 0, 4, 0}));
  EXPECT_EQ(view.is_empty(id), (Flags{0, 1, 1, 1, 0, 1}));
  const std::vector<Segment> part = view.block(2, 4).segments();
  ASSERT_EQ(part.size(), 2U);
  EXPECT_EQ(part[1].row, 1);
  EXPECT_EQ(part[1].begin, 2);
  EXPECT_EQ(part[1].count, 1);
  EXPECT_TRUE(part[0].carried && part[1].last && !part[0].last && !part[1].carried);
  EXPECT_EQ(view.block(3, 4).initial(id).to_vector<double>(), (Row{4, 0}));
  view.put_by_segment(id, Tensor::from(Row{10, 20, 30, 40, 50, 60}, {6, 1}));
  pool.commit();
  // The last segment of a row leaves its state; the row of padding keeps what it had.
  EXPECT_EQ(view.current(id).to_vector<double>(), (Row{30, 40, 3, 60}));
}

// A mechanism that writes now and then: nothing of an earlier document stays.
TEST(Registers, RowsMayKeepWhatTheyHaveUnlessADocumentBegan) {
  StateLayout layout;
  const RegisterId id = layout.add_register("chunk", {1});
  StatePool pool(layout, 3, 2, DType::f64, kCpu);
  const StateView view = pool.view(0, 3);
  pool.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {1, 1, 1}));
  view.put(id, Tensor::from(Row{1, 2, 3}, {3, 1}));
  pool.commit();
  pool.begin_step(batch_of({{0, 0}, {0, 1}, {0, 0}}, {0, 0, 0}));
  view.put(id, Tensor::from(Row{4, 5, 6}, {3, 1}), Flags{0, 0, 1});
  pool.commit();
  EXPECT_EQ(view.current(id).to_vector<double>(), (Row{1, 0, 6}));
  pool.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {0, 0, 0}));
  EXPECT_EQ(view.is_empty(id), (Flags{0, 1, 0}));
}

}  // namespace
}  // namespace quire::test
