// Tests what the DRT stack reads: how far back, how many chunks, with which weights, drawn how.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "autograd/functions/basic.h"
#include "layers/pass/host_values.h"
#include "tests/layers/drt_stack_reader.h"

namespace quire::test {
namespace {

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
  drt.carry.length = 3;
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
        std::set<int64_t> numbers, expected;
        for (const auto& [number, weight] : reader.of(t - begin)) numbers.insert(number);
        const int64_t chooses = t / 3 - 1;
        for (int64_t n = std::max<int64_t>(0, chooses - 3); n <= chooses - 2; ++n) expected.insert(n);
        EXPECT_EQ(numbers, expected) << t << " in passes of " << pass;
      }
    }
  }
}

TEST(DrtStack, EqualScoresChooseTheOldestChunks) {
  StackReader reader(small_model(), small_stack(), 30);
  parameter_named(reader.store(), "stack.groups.0.norm.weight").variable.value().zero();
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
    for (const double g : values_on_host(gradient_named(reader.store(), "stack.groups.0.norm.weight"))) {
      largest = std::max(largest, std::abs(g));
    }
    EXPECT_EQ(largest > 1e-6, scores == ChunkScores::learned) << largest;
  }
}

// The landmark of the last chunk chooses for a chunk that is not there, and chunk 0 is read by nobody before chunk 2.
TEST(DrtStack, OnlyWhatIsReadHasAGradient) {
  DrtConfig drt = small_stack();
  drt.carry.in_training = false;
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

TEST(DrtStack, TellsWhatAGroupReadsThatNoneBelowItReads) {
  ModelConfig model = small_model();
  model.layers = 3;
  DrtConfig drt = small_stack();
  drt.groups = 2;
  drt.lower_layers = 1;
  StackReader reader(model, drt, 24);
  Tape tape(false);
  reader.read(tape, states(24));
  reader.read(tape, states(24));  // with stored chunks
  std::set<std::pair<int64_t, int64_t>> below;
  for (const Retrieval& one : reader.retrieved["stack.groups.0"]) below.emplace(one.t, one.begin);
  double all = 0, fresh = 0;
  for (const Retrieval& one : reader.retrieved["stack.groups.1"]) {
    all += one.weight;
    if (!below.contains({one.t, one.begin})) fresh += one.weight;
  }
  EXPECT_GT(fresh, 0.1 * all);
  EXPECT_LT(fresh, 0.9 * all);
  const std::map<std::string, double> told(reader.telemetry.begin(), reader.telemetry.end());
  EXPECT_FALSE(told.contains("stack.groups.0.new"));
  EXPECT_NEAR(told.at("stack.groups.1.new"), fresh / all, 1e-12);
}

// Beyond a piece of the store the best chunks of all pieces are those that one comparison would find.
TEST(DrtStack, PiecesOfTheStoreAreComparedAsOne) {
  const int64_t chunks = 40;
  DrtConfig drt = small_stack();
  drt.carry.length = chunks;
  drt.encoder_layers = 0;
  drt.top_k = 3;
  StackReader reader(small_model(), drt, 3 * chunks);
  std::vector<Variable> landmarks, queries, scores;
  ChunkHooks hooks;
  hooks.piece = 16;
  hooks.seen = [&](const std::string& name, const Variable& value) {
    if (name == "groups.0.scores") scores.push_back(value);
  };
  reader.set_hooks(hooks);
  Tape tape(false);
  reader.read(tape, states(3 * (chunks - 4)));
  scores.clear();
  reader.read(tape, states(12));
  ASSERT_EQ(scores.size(), 3U) << "the store is compared in three pieces";
  // The scores of the last landmark, by chunk.
  std::vector<std::pair<double, int64_t>> all;
  for (const Variable& piece : scores) {
    const std::vector<double> values = values_on_host(piece.value());
    const auto columns = static_cast<size_t>(piece.dim(2));
    for (size_t i = 0; i < columns; ++i) {
      all.emplace_back(-values[2 * columns + i], static_cast<int64_t>(all.size()));
    }
  }
  all.resize(static_cast<size_t>(chunks - 2));  // up to the chunk before the last but one
  std::sort(all.begin(), all.end());
  const auto read = reader.of(11);
  ASSERT_EQ(read.size(), 3U);
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(read[k].first, all[k].second) << k;
}

}  // namespace
}  // namespace quire::test
