// Recomputation changes memory and nothing else.
#include "autograd/recompute.h"

#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "layers/memory/memory.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/document_rows.h"
#include "tests/support/trivial_memories.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

constexpr int64_t kVocabulary = 13;
constexpr int64_t kLength = 6;
constexpr const char* kModel = R"(
model:
  width: 8
  layers: 3
  heads: 2
  mlp: {hidden: 12}
  dropout: {embedding: 0.1, attention: 0.2, mlp: 0.3, residual: 0.2, output: 0.1}
  initialization: {std: 0.3}
)";

struct Pass {
  std::vector<Tensor> gradients;  // of each step
  std::vector<NamedTensor> state;
  std::vector<double> losses;
};

// Three training steps (without updates) over documents that end inside rows, all `scale` times as long.
Pass train(std::vector<std::string> settings, const std::string& recompute, int64_t scale = 1) {
  register_trivial_memories();
  settings.push_back("model.recompute=" + recompute);
  const RunConfig config = parse_config<RunConfig>(kModel, "run.yaml", settings);
  ParameterStore store;
  Network network(store, config.model, kVocabulary, DType::f32);
  store.allocate(DType::f32, kCpu, 1);
  StatePool pool(network.declared.state, 2, scale * kLength, DType::f32, kCpu);
  Pass pass;
  const auto documents = random_documents({{15 * scale}, {4 * scale, 9 * scale}}, kVocabulary, 1);
  for (const Batch& batch : cut(documents, scale * kLength, Pack::concat)) {
    pool.begin_step(batch);
    store.zero_gradients();
    Tape tape;
    const LossTerms loss = network.model.loss(
        {.tape = tape, .batch = batch, .state = pool.view(0, 2), .key = RandomKey::of(7, 1), .training = true});
    pass.losses.push_back(loss.terms[0].sum.value().data<double>()[0]);
    tape.backward({{loss.terms[0].sum, 1.0}});
    pool.commit();
    pass.gradients.push_back(clone(store.gradients()));
  }
  for (const NamedTensor& state : pool.tensors()) pass.state.push_back({state.name, clone(state.tensor)});
  return pass;
}

void expect_same_bits_recomputed(const std::vector<std::string>& settings, int64_t scale = 1) {
  const Pass expected = train(settings, "none", scale);
  for (const char* kind : {"blocks", "attention", "mlp"}) {
    SCOPED_TRACE(kind);
    const Pass got = train(settings, kind, scale);
    EXPECT_EQ(got.losses, expected.losses);
    ASSERT_EQ(got.gradients.size(), 3U);
    for (size_t i = 0; i < got.gradients.size(); ++i) {
      EXPECT_TRUE(same_bits(got.gradients[i], expected.gradients[i])) << "step " << i + 1;
    }
    ASSERT_EQ(got.state.size(), expected.state.size());
    for (size_t i = 0; i < got.state.size(); ++i) {
      EXPECT_TRUE(same_bits(got.state[i].tensor, expected.state[i].tensor)) << got.state[i].name;
    }
  }
}

class Recomputation : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Recomputation, ChangesNoBit) {
  expect_same_bits_recomputed(GetParam());
}

// The keys of a chunk fill a vector and a part of one. The first pass keeps no shares of a chunk's keys, and the second
// does.
TEST(RecomputationOfLongChunks, ChangesNoBit) {
  for (const char* summary : {"prior", "exact"}) {
    SCOPED_TRACE(summary);
    expect_same_bits_recomputed({"model.position.kind=rope", "model.key_heads=1", "model.dropout.attention=0",
                                 std::string("model.attention={kind: hils, hils: {chunk: 20, window: 24, summary: ") +
                                     summary + ", carry: {length: 9}}}"},
                                20);
  }
}

using Settings = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    , Recomputation,
    ::testing::Values(Settings{"model.attention.softmax.carry={kind: hidden, length: 5}", "model.dropout.position=0.2"},
                      Settings{"model.position.kind=t5",
                               "model.attention={softmax: {window: 4, qk_norm: true, carry: {kind: kv}}}"},
                      Settings{"model.position.kind=rope", "model.key_heads=1",
                               "model.attention.softmax.carry={kind: kv, length: 5, dtype: bf16}"},
                      Settings{"model.position.kind=alibi", "model.attention.softmax.carry={kind: hidden, length: 5}",
                               "model.norm={kind: layer, placement: post, last: false}"},
                      Settings{"model.position.kind=none",
                               "model.memory=[{kind: trivial_register, layers: [0]}, {kind: "
                               "trivial_log, layers: [1, 2], size: 4}]"}));

// A mechanism that only counts how often it may write.
class WriteCounter final : public Memory {
 public:
  explicit WriteCounter(int64_t& count) : count_(count) {}
  Variable combine(const Forward& f, const MixerTensors& mixer) override {
    if (f.write_state) ++count_;
    return mixer.local;
  }

 private:
  int64_t& count_;
};

TEST(RecomputationState, IsWrittenOnce) {
  static int64_t count;
  register_mechanism({.role = Role::memory,
                      .kind = "write_counter",
                      .help = "counts what it would write",
                      .make_memory = [](const Scope&, const Place&, const MixerShape&) -> std::unique_ptr<Memory> {
                        return std::make_unique<WriteCounter>(count);
                      }});
  for (const char* kind : {"none", "blocks", "attention", "mlp"}) {
    count = 0;
    train({"model.memory=[{kind: write_counter, layers: [0, 1, 2]}]"}, kind);
    EXPECT_EQ(count, 3 * 3) << kind;  // layers and steps
  }
}

// Returns the largest number of bytes that a training step of a model needs beyond its weights, by the counting device.
int64_t peak_of(const std::string& recompute) {
  const RunConfig config = parse_config<RunConfig>(
      "model: {width: 256, layers: 16, heads: 4, mlp: {hidden: 1024}, attention: {softmax: {carry: {kind: hidden, "
      "length: 64}}}}",
      "run.yaml", {"model.recompute=" + recompute});
  ParameterStore store;
  const Network network(store, config.model, 64, DType::f32);
  store.allocate(DType::f32, kMeta, 1);
  StatePool pool(network.declared.state, 8, 64, DType::f32, kMeta);
  const Batch batch = cut(random_documents(std::vector<std::vector<int64_t>>(8, {64}), 64, 1), 64, Pack::pad)[0];
  pool.begin_step(batch);
  Allocator& allocator = device_backend(DeviceKind::meta).allocator();
  const int64_t before = allocator.stats().bytes_in_use;
  allocator.reset_peak();
  Tape tape;
  const LossTerms loss = network.model.loss({.tape = tape, .batch = batch, .state = pool.view(0, 8), .training = true});
  tape.backward({{loss.terms[0].sum, 1.0}});
  return allocator.stats().peak_bytes - before;
}

TEST(RecomputationMemory, KeepsOneBlockAndTheInputsOfTheOthers) {
  const int64_t all = peak_of("none");
  const int64_t blocks = peak_of("blocks");
  const int64_t inputs = 16 * 8 * 64 * 256 * 4;  // the residual stream at the beginning of each block
  EXPECT_GT(blocks, inputs);
  EXPECT_LT(blocks, inputs + all / 16 * 2);  // one block, and gradients on their way
  EXPECT_LT(blocks, all / 5);
  for (const char* part : {"attention", "mlp"}) {
    EXPECT_LT(peak_of(part), all * 4 / 5) << part;
    EXPECT_GT(peak_of(part), blocks) << part;
  }
}

TEST(Recompute, GradientsReachInputsAndParameters) {
  RandomTensors random(3);
  const Tensor x = random.normal({4, 5});
  const Tensor w = random.normal({5, 5});
  const Tensor dy = random.normal({4, 5});
  std::vector<Tensor> expected;
  for (const bool twice : {false, true}) {
    const Variable a = Variable::leaf(clone(x));
    const Variable weight = Variable::leaf(clone(w));
    const auto function = [&](Tape& tape, const std::vector<Variable>& in, bool) {
      const Variable y = activation(tape, linear(tape, in[0], weight), ops::Activation::gelu);
      return std::vector{add(tape, linear(tape, y, weight), in[0])};
    };
    Tape tape;
    const Variable y = twice ? recompute(tape, {a}, function)[0] : function(tape, {a}, false)[0];
    const Variable z = add(tape, y, a);  // the input has another use
    tape.backward({{weighted_sum(tape, z, dy), 1.0}});
    if (expected.empty()) {
      expected = {a.gradient()->value(), weight.gradient()->value()};
    } else {
      EXPECT_TRUE(same_bits(a.gradient()->value(), expected[0]));
      EXPECT_TRUE(same_bits(weight.gradient()->value(), expected[1]));
    }
  }
}

TEST(Recompute, TellsTheSecondPassAndKeepsNothing) {
  std::vector<bool> passes;
  const auto function = [&](Tape& tape, const std::vector<Variable>& in, bool again) {
    passes.push_back(again);
    EXPECT_EQ(tape.recording(), again);
    return std::vector{scale(tape, in[0], 2)};
  };
  const Variable x = Variable::leaf(RandomTensors(1).normal({3}));
  Tape tape;
  const Variable y = recompute(tape, {x}, function)[0];
  EXPECT_EQ(tape.size(), 1U);
  tape.backward({{weighted_sum(tape, y, RandomTensors(2).normal({3})), 1.0}});
  EXPECT_EQ(passes, (std::vector<bool>{false, true}));
  passes.clear();
  Tape evaluation(false);
  const auto plain = [&](Tape&, const std::vector<Variable>& in, bool again) {
    passes.push_back(again);
    return std::vector{in[0]};
  };
  recompute(evaluation, {x}, plain);
  EXPECT_EQ(passes, std::vector<bool>{false});
}

}  // namespace
}  // namespace quire::test
