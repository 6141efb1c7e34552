// A register whose documents begin with a learned value: rows that were emptied begin with it again.
#include <gtest/gtest.h>

#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/document_rows.h"
#include "tests/support/hand_batch.h"
#include "tests/support/test_mechanisms.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

constexpr int64_t kVocabulary = 13;
constexpr int64_t kLength = 6;

// One document of two steps in one row; the memory learns every four positions, so the second step begins inside a
// chunk. Attention without a cache: the memory alone knows about the first step.
class Reader {
 public:
  Reader() {
    register_test_mechanisms();
    const RunConfig config = parse_config<RunConfig>(
        "model: {width: 8, layers: 1, heads: 2, mlp: {hidden: 12}, initialization: {std: 0.3}}\n", "run.yaml",
        {"model.memory=[{kind: fast_weight, layers: [0], chunk: 4}]"});
    network_ = std::make_unique<Network>(store_, config.model, kVocabulary, DType::f64);
    store_.allocate(DType::f64, kCpu, 1);
    state_ = std::make_unique<StatePool>(network_->declared.state, 1, kLength, DType::f64, kCpu);
  }

  struct Step {
    Tensor nll, begin;  // the gradient of the learned value
  };
  Step step(const Batch& batch, bool cleared = false) {
    state_->begin_step(batch);
    store_.zero_gradients();
    Tape tape;
    const StateView view = state_->view(0, 1);
    const LossTerms loss = network_->model.loss({.tape = tape,
                                                 .batch = batch,
                                                 .state = view,
                                                 .training = true,
                                                 .loss_seeds = std::vector<double>(network_->declared.losses.size())});
    tape.backward({{loss.terms[0].sum, 1.0}});
    const uint8_t flag = cleared ? 1 : 0;
    state_->commit({&flag, 1});
    Step step{clone(loss.nll), {}};
    for (const ParameterStore::Entry& entry : store_.entries()) {
      if (entry.name.ends_with(".begin")) step.begin = clone(ParameterStore::slice(store_.gradients(), entry));
    }
    return step;
  }

 private:
  ParameterStore store_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<StatePool> state_;
};

TEST(LearnedState, SurvivesAClearedRow) {
  const std::vector<Batch> batches = cut(random_documents({{2 * kLength}}, kVocabulary, 1), kLength, Pack::pad);
  ASSERT_EQ(batches.size(), 2U);
  const Tensor zero = Tensor::zeros({2, 4, 4}, DType::f64, kCpu);

  Reader carried;
  const Reader::Step first = carried.step(batches[0]);
  EXPECT_GT(relative_error(first.begin, zero), 0);
  const Reader::Step second = carried.step(batches[1]);
  // Carried state is constant.
  EXPECT_EQ(relative_error(second.begin, zero), 0);

  // As if nothing had been read before.
  Reader fresh;
  const Reader::Step expected = fresh.step(batches[1]);
  EXPECT_GT(relative_error(expected.nll, second.nll), 1e-3);
  EXPECT_GT(relative_error(expected.begin, zero), 0);

  Reader cleared;
  cleared.step(batches[0], true);
  const Reader::Step got = cleared.step(batches[1]);
  EXPECT_TRUE(same_bits(got.nll, expected.nll));
  EXPECT_TRUE(same_bits(got.begin, expected.begin));
}

// However long the subsequence is, a layer leaves few records: the tape grows with layers, not with chunks.
TEST(FastWeight, LeavesFewRecordsOnTheTape) {
  register_test_mechanisms();
  std::vector<size_t> records;
  for (const int64_t length : {64, 512}) {
    const RunConfig config =
        parse_config<RunConfig>("model: {width: 16, layers: 1, heads: 4, mlp: {hidden: 16}}\n", "run.yaml",
                                {"model.memory=[{kind: fast_weight, layers: [0], chunk: 16}]"});
    ParameterStore store;
    const Network network(store, config.model, kVocabulary, DType::f32);
    store.allocate(DType::f32, kCpu, 1);
    StatePool state(network.declared.state, 1, length, DType::f32, kCpu);
    const Batch batch = one_segment(1, length, {1});
    state.begin_step(batch);
    Tape tape;
    network.model.loss({.tape = tape,
                        .batch = batch,
                        .state = state.view(0, 1),
                        .training = true,
                        .loss_seeds = std::vector<double>(network.declared.losses.size())});
    records.push_back(tape.size());
  }
  EXPECT_EQ(records[0], records[1]);
  EXPECT_LE(records[1], 2000U);
  EXPECT_GT(records[1], 5U);
}

}  // namespace
}  // namespace quire::test
