// Gradients leave for the other ranks while the sweep computes the rest.
#include "trainers/setup/gradient_reducer.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/ranks/in_process.h"
#include "tests/support/lone_control.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"

namespace quire::test {
namespace {

// Remembers how many sums have begun, and finishes them at once.
class CountingCollectives : public Collectives {
 public:
  void all_reduce(const Tensor&) override { ++finished_; }
  void reduce_scatter(const Tensor& values, const PartBounds&) override {
    sizes.push_back(values.numel());
    ++finished_;
  }
  void all_gather(const Tensor&, const PartBounds&) override { ++finished_; }
  void wait() override {}
  int64_t finished() const override { return finished_; }

  std::vector<int64_t> sizes;

 private:
  int64_t finished_ = 0;
};

// Sixteen buckets of a model of four layers: all but those of the embedding, which the sweep reaches last, and of the
// vectors of all layers are on their way when it ends.
TEST(GradientReducer, ManyLeaveBeforeTheSweepEnds) {
  const TemporaryDirectory folder;
  write_corpus(folder / "corpus.h5", {{"train", texts_of_lengths({40, 41, 42})}, {"valid", {}}});
  const std::unique_ptr<Corpus> corpus = Corpus::open(folder / "corpus.h5");
  const RunConfig config = mechanism_config({"run.precision=f32", "data.rows=4", "data.accumulate=2", "model.width=64",
                                             "model.layers=4", "model.mlp.hidden=256", "model.position.kind=rope"});
  auto counting = std::make_unique<CountingCollectives>();
  CountingCollectives& collectives = *counting;
  Ranks ranks(std::make_unique<LoneControl>(0, 2), std::move(counting));
  TrainingRun run(config, *corpus, &ranks);
  const auto& buckets = run.training().parts->buckets();
  EXPECT_GE(buckets.size(), 8U);

  run.step();  // learns the order
  EXPECT_EQ(run.training().reducer->overlap(), 0);
  EXPECT_EQ(collectives.sizes.size(), buckets.size());
  const std::vector<int64_t> order = collectives.sizes;
  for (int step = 0; step < 3; ++step) {
    collectives.sizes.clear();
    const StepResult result = run.step();
    EXPECT_EQ(result.overlap, run.training().reducer->overlap());
    EXPECT_GT(result.overlap, 0.75);
    EXPECT_EQ(collectives.sizes, order);  // each once, always in the same order
  }
}

// A parameter that no operation of the step uses sends zeros: the other rank has something to add.
TEST(GradientReducer, WhatTheSweepDoesNotReachSendsZeros) {
  run_in_process(2, [](Ranks& ranks) {
    ParameterStore store;
    const Parameter used(store.parameter("used", {40, 40}, Initializer::constant(1), true));
    const Parameter unused(store.parameter("unused", {40, 40}, Initializer::constant(1), true));
    store.allocate(DType::f64, kCpu, 1);
    const ParameterParts parts(store, {ranks.rank(), ranks.size()}, ParameterParts::Cut::anywhere, 1600);
    ASSERT_EQ(parts.buckets().size(), 2U);
    GradientReducer reducer(store, parts);
    for (int step = 0; step < 2; ++step) {
      store.zero_gradients();
      Tape tape;
      const Variable& mine = ranks.rank() == 0 ? used : unused;
      const Tensor gradient = Tensor::from(std::vector<double>(1600, 1 + step), {40, 40});
      const Variable out =
          tape.result("twice", mine.value(), {&mine}, [&](const Tensor& dvalue) { mine.gradient()->add(dvalue); });
      reducer.watch(tape, ranks);
      tape.backward(out, gradient);
      reducer.flush(ranks);
      ranks.collectives().wait();
      for (const ArenaRange& range : parts.mine()) {
        const std::vector<double> sums = store.gradients().slice(0, range.begin, range.end).to_vector<double>();
        EXPECT_EQ(sums, std::vector<double>(sums.size(), 1 + step));
      }
    }
  });
}

}  // namespace
}  // namespace quire::test
