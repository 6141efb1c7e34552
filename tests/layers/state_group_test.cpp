// Logs that move together, entries of more than one token, and what is derived from a row's state.
#include <gtest/gtest.h>

#include "layers/state/state_pool.h"
#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"
#include "tests/support/saved_state.h"

namespace quire::test {
namespace {

using Row = std::vector<double>;
using Counts = std::vector<int64_t>;

Row row_of(const Tensor& tensor, int64_t row) {
  return tensor.select(0, row).to_vector<double>();
}

TEST(LogGroups, AreCountedAndSavedOnce) {
  StateLayout layout;
  const LogGroupId group = layout.add_log_group("memory", 3, {.waits = true, .ages = true});
  const LogId keys = layout.add_log(group, "keys", {1});
  const LogId codes = layout.add_log(group, "codes", {}, DType::i32);
  StatePool pool(layout, 1, 2, DType::f64, kCpu);
  const StateView view = pool.view(0, 1);
  for (int32_t step = 0; step < 3; ++step) {
    pool.begin_step(batch_of({{0, 0}}, {static_cast<uint8_t>(step == 0 ? 1 : 0)}));
    view.append(keys, Tensor::from(Row{2.0 * step, 2.0 * step + 1}, {1, 2, 1}));
    view.append(codes, Tensor::from(std::vector<int32_t>{2 * step, 2 * step + 1}, {1, 2}));
    pool.commit();
  }
  EXPECT_EQ(view.lengths(group), Counts{3});
  EXPECT_EQ(view.written(group, 0), 6);
  EXPECT_EQ(view.ages(group, 0).size(), 2U);
  EXPECT_EQ(row_of(view.gather(keys), 0), (Row{3, 4, 5}));
  const Tensor stored = view.gather(codes, 3, Counts{0}, Counts{3});
  EXPECT_EQ(stored.to_vector<int32_t>(), (std::vector<int32_t>{3, 4, 5}));

  // Entries that are made anew count once for the group.
  pool.begin_step(batch_of({{0, 0}}, {0}));
  view.replace(keys, Tensor::from(Row{30}, {1, 1, 1}), Counts{0}, Counts{1});
  view.replace(codes, Tensor::from(std::vector<int32_t>{30}, {1, 1}), Counts{0}, Counts{1});
  pool.commit();
  EXPECT_EQ(row_of(view.gather(keys), 0), (Row{30, 4, 5}));
  const std::vector<LogRun> runs = view.ages(group, 0);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].step, 1);
  EXPECT_EQ(runs[0].count, 1);

  std::vector<std::string> names;
  for (const NamedTensor& tensor : pool.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"memory.head", "memory.length", "memory.written", "memory.ages",
                                             "memory.keys.ring", "memory.codes.ring"}));
}

TEST(LogGroups, RefuseALogThatIsLeftBehind) {
  StateLayout layout;
  const LogGroupId group = layout.add_log_group("cache", 3);
  const LogId keys = layout.add_log(group, "keys", {1});
  layout.add_log(group, "values", {1});
  StatePool pool(layout, 1, 2, DType::f64, kCpu);
  pool.begin_step(batch_of({{0, 0}}, {1}));
  pool.view(0, 1).append(keys, Tensor::zeros({1, 2, 1}, DType::f64));
  EXPECT_ERROR(pool.commit(), ErrorKind::internal, "a log of its group was given other entries");
}

// Blocks of three tokens in steps of four: a step ends one or two of them, the first of which may have begun before it.
TEST(LogGroups, HoldBlocks) {
  constexpr int64_t kGrain = 3;
  StateLayout layout;
  const LogGroupId group = layout.add_log_group("blocks", 2, {.grain = kGrain});
  const LogId log = layout.add_log(group, "summary", {1});
  StatePool pool(layout, 2, 4, DType::f64, kCpu);
  const StateView view = pool.view(0, 2);
  EXPECT_EQ(view.stored_ring(log).dim(1), 2 + 3);
  // Row 1 begins another document with its third step; values count the blocks of a row.
  double next[2] = {1, 101};
  int64_t tokens[2] = {0, 0};
  for (int step = 0; step < 6; ++step) {
    const bool other = step == 3;
    pool.begin_step(other ? batch_of({{0, 0, 0, 0}, {0, 1, 1, 1}}, {0, 0})
                          : batch_of({{0, 0, 0, 0}, {0, 0, 0, 0}}, {0, 0}));
    std::vector<double> values(2 * 3, -1);
    Counts first{1, 0}, count{0, 0};
    for (size_t r = 0; r < 2; ++r) {
      if (other && r == 1) tokens[r] = -1;
      const int64_t before = std::max<int64_t>(tokens[r], 0) / kGrain;
      tokens[r] += 4;
      count[r] = tokens[r] / kGrain - before;
      for (int64_t n = 0; n < count[r]; ++n) values[r * 3 + static_cast<size_t>(first[r] + n)] = next[r]++;
    }
    view.append(log, Tensor::from(values, {2, 3, 1}), first, count);
    pool.commit();
  }
  EXPECT_EQ(view.written(group, 0), 8);
  EXPECT_EQ(row_of(view.gather(log), 0), (Row{7, 8}));
  // Eleven tokens of the second document.
  EXPECT_EQ(view.written(group, 1), 3);
  EXPECT_EQ(view.lengths(group), (Counts{2, 2}));
  EXPECT_EQ(row_of(view.gather(log), 1), (Row{next[1] - 2, next[1] - 1}));

  pool.begin_step(batch_of({{0, 0, 0, 0}, {0, 0, 1, 1}}, {0, 0}));
  EXPECT_EQ(view.initial_lengths(group), (Counts{2, 2, 0}));
  const Tensor many = Tensor::zeros({2, 4, 1}, DType::f64);
  EXPECT_ERROR(view.append(log, many), ErrorKind::internal, "say which of its blocks or chunks each row adds");
  EXPECT_ERROR(view.append(log, many, Counts{0, 0}, Counts{4, 0}), ErrorKind::internal,
               "4 entries in one step, and the log has room for 3");
}

struct Sum final : DerivedState {
  double value = 0;
  int cleared = 0;
  void clear() override {
    value = 0;
    ++cleared;
  }
};

TEST(DerivedStates, EndWithTheStateTheyWereMadeFrom) {
  StateLayout layout;
  int made = 0;
  layout.add_register("mean", {1});
  const DerivedId<Sum> id = layout.add_derived<Sum>([&made] {
    ++made;
    return std::make_unique<Sum>();
  });
  StatePool pool(layout, 3, 2, DType::f64, kCpu);
  const StateView view = pool.view(0, 3);
  const auto fill = [&] {
    for (int64_t row = 0; row < 3; ++row) view.derived(id, row).value = 1;
  };
  const auto values = [&] {
    return Row{view.derived(id, 0).value, view.derived(id, 1).value, view.derived(id, 2).value};
  };
  pool.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {1, 1, 1}));
  EXPECT_EQ(made, 0) << "nobody has asked";
  fill();
  pool.commit();
  EXPECT_EQ(made, 3);
  EXPECT_EQ(values(), (Row{1, 1, 1}));
  // Row 0 begins a document with the step, row 1 inside it.
  pool.begin_step(batch_of({{0, 0}, {0, 1}, {0, 0}}, {1, 0, 0}));
  EXPECT_EQ(values(), (Row{0, 1, 1}));
  fill();
  pool.commit();
  EXPECT_EQ(values(), (Row{1, 0, 1}));
  pool.begin_step(batch_of({{0, 0}, {0, 0}, {0, 0}}, {0, 0, 0}));
  fill();
  pool.commit(std::vector<uint8_t>{0, 0, 1});
  EXPECT_EQ(values(), (Row{1, 1, 0}));
  load_state(pool, saved_state(pool));
  EXPECT_EQ(values(), (Row{0, 0, 0}));
  EXPECT_EQ(pool.view(2, 3).derived(id, 0).cleared, 2);
}

}  // namespace
}  // namespace quire::test
