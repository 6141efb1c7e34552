// What the DRT stack reads: how far back, how many chunks, with which weights, drawn how.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/basic.h"
#include "layers/host_values.h"
#include "layers/stacks/drt.h"
#include "layers/state/state_pool.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

constexpr int64_t kWidth = 8;

ModelConfig small_model() {
  ModelConfig model;
  model.width = kWidth;
  model.layers = 2;
  model.heads = 2;
  model.mlp.hidden = 8;
  model.position = Position::alibi;
  model.attention.window = 4;
  model.initialization.std = 0.5;
  return model;
}

DrtConfig small_stack() {
  DrtConfig drt;
  drt.chunk = 2;
  drt.top_k = 2;
  drt.groups = 1;
  drt.encoder_layers = 1;
  drt.capacity = 16;
  return drt;
}

// One document in one row, read from its beginning in one or several passes.
class StackReader {
 public:
  StackReader(const ModelConfig& model, const DrtConfig& drt, int64_t longest)
      : model_(model),
        box_(drt),
        scope_(store_, declared_, DType::f64),
        layers_(model_.layer_configs()),
        stack_(scope_.child("stack"), {model_, layers_.front(), box_}) {
    store_.allocate(DType::f64, test_device(), 1);
    pool_.emplace(declared_.state, 1, longest, DType::f64, test_device());
  }

  Variable read(Tape& tape, const Variable& x, int32_t step = 0) {
    const int64_t length = x.dim(1);
    const Batch batch = one_segment_from(position_, 1, length);
    pool_->begin_step(batch);
    const StateView view = pool_->view(0, 1);
    Forward f{.tape = tape, .batch = batch, .state = view};
    f.key = RandomKey::of(7, step);
    f.training = training;
    f.values = std::make_shared<std::vector<Variable>>(declared_.values.size());
    retrieved.clear();
    f.retrieved = &retrieved;
    const Variable y = stack_(f, x);
    pool_->commit();
    position_ += length;
    return y;
  }
  void begin_again() { position_ = 0; }

  const std::vector<Retrieval>& reads() { return retrieved["stack.groups.0"]; }
  // The chunks that a position reads, in the order of its list, and their weights.
  std::vector<std::pair<int64_t, double>> of(int64_t t) {
    std::vector<std::pair<int64_t, double>> chunks;
    for (const Retrieval& one : reads()) {
      if (one.t == t) chunks.emplace_back(one.begin / 3, one.weight);
    }
    return chunks;
  }
  Variable parameter(const std::string& name) const {
    for (const ParameterStore::Entry& entry : store_.entries()) {
      if (entry.name == name) return entry.variable;
    }
    ADD_FAILURE() << name;
    return {};
  }
  const ParameterStore& store() const { return store_; }

  bool training = false;
  Retrievals retrieved;

 private:
  ModelConfig model_;
  ConfigBox box_;
  ParameterStore store_;
  Declarations declared_;
  Scope scope_;
  std::vector<LayerConfig> layers_;
  DrtStack stack_;
  std::optional<StatePool> pool_;
  int64_t position_ = 0;
};

Variable states(int64_t length) {
  return Variable::constant(RandomTensors(3).normal({1, length, kWidth}).to(test_device()));
}

TEST(DrtStack, AChunkReadsWhatTheLandmarkBeforeItHasChosen) {
  StackReader reader(small_model(), small_stack(), 20);
  Tape tape(false);
  reader.read(tape, states(20));
  for (int64_t t = 0; t < 20; ++t) {
    const int64_t chunk = t / 3;
    const auto chunks = reader.of(t);
    EXPECT_EQ(chunks, reader.of(chunk * 3)) << "all positions of a chunk read the same, " << t;
    // Chunk 0 follows no landmark, and chunk 1 one before which there is no chunk.
    ASSERT_EQ(static_cast<int64_t>(chunks.size()), std::clamp<int64_t>(chunk - 1, 0, 2)) << t;
    double sum = 0;
    for (const auto& [number, weight] : chunks) {
      EXPECT_LE(number, chunk - 2);
      sum += weight;
    }
    EXPECT_NEAR(sum, chunks.empty() ? 0 : 1, 1e-12);
  }
}

TEST(DrtStack, CapacityAndNearestBoundWhatIsRead) {
  DrtConfig drt = small_stack();
  drt.capacity = 3;
  drt.nearest = 2;
  drt.top_k = 4;
  for (const int64_t pass : {33, 5, 1}) {
    StackReader reader(small_model(), drt, pass);
    Tape tape(false);
    const Variable x = states(33);
    for (int64_t begin = 0; begin < 33; begin += pass) {
      const int64_t end = std::min<int64_t>(33, begin + pass);
      reader.read(tape, slice(tape, x, 1, begin, end));
      for (int64_t t = begin; t < end; ++t) {
        std::set<int64_t> numbers, wanted;
        for (const auto& [number, weight] : reader.of(t - begin)) numbers.insert(number);
        const int64_t chooses = t / 3 - 1;
        for (int64_t n = std::max<int64_t>(0, chooses - 3); n <= chooses - 2; ++n) wanted.insert(n);
        EXPECT_EQ(numbers, wanted) << t << " in passes of " << pass;
      }
    }
  }
}

TEST(DrtStack, EqualScoresChooseTheOldestChunks) {
  StackReader reader(small_model(), small_stack(), 30);
  reader.parameter("stack.groups.0.norm.weight").value().zero();
  Tape tape(false);
  reader.read(tape, states(30));
  const std::vector<std::pair<int64_t, double>> oldest{{0, 0.5}, {1, 0.5}};
  EXPECT_EQ(reader.of(29), oldest);
}

// Gumbel noise: the chunk with the largest noisy score is drawn with the probabilities of a softmax over scores.
TEST(DrtStack, NoiseDrawsLikeASoftmax) {
  DrtConfig drt = small_stack();
  drt.top_k = 3;
  StackReader exact(small_model(), drt, 15);
  Tape tape(false);
  const Variable x = states(15);
  exact.read(tape, x);
  std::map<int64_t, double> share;
  for (const auto& [number, weight] : exact.of(12)) share[number] = weight;  // all three candidates
  ASSERT_EQ(share.size(), 3U);
  drt.top_k = 1;
  StackReader drawing(small_model(), drt, 15);
  drawing.training = true;
  std::map<int64_t, double> drawn;
  constexpr int kSteps = 4000;
  for (int step = 0; step < kSteps; ++step) {
    drawing.begin_again();
    drawing.read(tape, x, step);
    drawn[drawing.of(12)[0].first] += 1.0 / kSteps;
    EXPECT_EQ(drawing.of(12)[0].second, 1);
  }
  for (const auto& [number, weight] : share) {
    EXPECT_NEAR(drawn[number], weight, 4 * std::sqrt(weight * (1 - weight) / kSteps)) << number;
  }
  // The noise follows the step alone.
  drawing.begin_again();
  drawing.read(tape, x, 5);
  const auto first = drawing.reads();
  drawing.begin_again();
  drawing.read(tape, x, 5);
  ASSERT_EQ(first.size(), drawing.reads().size());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].begin, drawing.reads()[i].begin);
  // Reading without training draws nothing.
  drawing.training = false;
  drawing.begin_again();
  drawing.read(tape, x, 6);
  const auto best = std::max_element(share.begin(), share.end(), [](auto& a, auto& b) { return a.second < b.second; });
  EXPECT_EQ(drawing.of(12)[0].first, best->first);
}

TEST(DrtStack, RandomChunksAreUniformAndFixedScoresLearnNothing) {
  DrtConfig drt = small_stack();
  drt.top_k = 1;
  drt.scores = ChunkScores::random;
  StackReader random(small_model(), drt, 15);
  Tape tape(false);
  const Variable x = states(15);
  std::map<int64_t, double> drawn;
  constexpr int kSteps = 3000;
  for (int step = 0; step < kSteps; ++step) {
    random.begin_again();
    random.read(tape, x, step);
    drawn[random.of(12)[0].first] += 1.0 / kSteps;
  }
  ASSERT_EQ(drawn.size(), 3U);
  for (const auto& [number, share] : drawn) EXPECT_NEAR(share, 1.0 / 3, 0.035) << number;

  for (const ChunkScores scores : {ChunkScores::fixed, ChunkScores::learned}) {
    drt = small_stack();
    drt.scores = scores;
    drt.noise = 0;
    StackReader reader(small_model(), drt, 15);
    Tape recorded;
    const Variable y = reader.read(recorded, x);
    recorded.backward({{weighted_sum(recorded, y, RandomTensors(4).normal(y.shape()).to(test_device())), 1.0}});
    double largest = 0;
    for (const ParameterStore::Entry& entry : reader.store().entries()) {
      if (entry.name != "stack.groups.0.norm.weight") continue;
      for (const double g : values_on_host(ParameterStore::slice(reader.store().gradients(), entry))) {
        largest = std::max(largest, std::abs(g));
      }
    }
    EXPECT_EQ(largest > 1e-6, scores == ChunkScores::learned) << largest;
  }
}

// The landmark of the last chunk chooses for a chunk that is not there, and chunk 0 is read by nobody before chunk 2.
TEST(DrtStack, OnlyWhatIsReadHasAGradient) {
  DrtConfig drt = small_stack();
  drt.carry = false;
  StackReader reader(small_model(), drt, 6);
  Tape tape;
  const Variable y = reader.read(tape, states(6));
  EXPECT_TRUE(reader.reads().empty());
  tape.backward({{weighted_sum(tape, y, RandomTensors(4).normal(y.shape()).to(test_device())), 1.0}});
  for (const ParameterStore::Entry& entry : reader.store().entries()) {
    if (!entry.name.starts_with("stack.") && !entry.name.starts_with("blocks.1.mlp.query")) continue;
    for (const double g : values_on_host(ParameterStore::slice(reader.store().gradients(), entry))) {
      EXPECT_EQ(g, 0) << entry.name;
    }
  }
}

}  // namespace
}  // namespace quire::test
