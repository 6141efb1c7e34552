// Values that one layer leaves for later ones of the same pass, and what recomputation does with them.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/recompute.h"
#include "layers/model/block.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"

namespace quire::test {
namespace {

// Undefined where nothing arrived.
Tensor gradient_of(const Variable& x) {
  return x.gradient()->has_value() ? clone(x.gradient()->value()) : Tensor();
}

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  EXPECT_TRUE(!a.defined() || same_bits(a, b)) << what;
}

struct Weights {
  Variable x, first, second;
  std::vector<Tensor> gradients() const { return {gradient_of(x), gradient_of(first), gradient_of(second)}; }
};

// Gradients of (gelu(x A), gelu(x A) B + x), of which the sweep begins with the outputs that are needed. The second
// output is made of the first, and the input has another use outside.
std::vector<Tensor> gradients_of_two_outputs(bool twice, bool first, bool second, int* passes) {
  RandomTensors random(3);
  const Weights w{Variable::leaf(random.normal({4, 5})), Variable::leaf(random.normal({5, 5})),
                  Variable::leaf(random.normal({5, 5}))};
  const Tensor d[] = {random.normal({4, 5}), random.normal({4, 5}), random.normal({4, 5})};
  const auto function = [&](Tape& tape, const std::vector<Variable>& in, bool) {
    ++*passes;
    const Variable y = activation(tape, linear(tape, in[0], w.first), ops::Activation::gelu);
    return std::vector{y, add(tape, linear(tape, y, w.second), in[0])};
  };
  Tape tape;
  const std::vector<Variable> y = twice ? recompute(tape, {w.x}, function) : function(tape, {w.x}, false);
  std::vector<Tape::Seed> seeds{{weighted_sum(tape, w.x, d[2]), 1.0}};
  if (first) seeds.push_back({weighted_sum(tape, y[0], d[0]), 1.0});
  if (second) seeds.push_back({weighted_sum(tape, y[1], d[1]), 1.0});
  tape.backward(seeds);
  return w.gradients();
}

TEST(RecomputeOutputs, AnyOfTheOutputsMayGetAGradient) {
  const char* names[] = {"x", "first", "second"};
  for (const auto& [first, second] : {std::pair{true, false}, {false, true}, {true, true}, {false, false}}) {
    int plain = 0;
    int twice = 0;
    const std::vector<Tensor> expected = gradients_of_two_outputs(false, first, second, &plain);
    const std::vector<Tensor> got = gradients_of_two_outputs(true, first, second, &twice);
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_same_bits(got[i], expected[i], fmt::format("{} with {} {}", names[i], first, second));
    }
    // Nobody runs it again for nothing.
    EXPECT_EQ(twice, first || second ? 2 : 1);
    EXPECT_EQ(expected[1].defined(), first || second);
    EXPECT_EQ(expected[2].defined(), second);
  }
}

// Leaves what it projects, under the name `summary`.
class Leaves final : public Part {
 public:
  Leaves(const Scope& scope, int64_t width)
      : out_(scope.child("out"), width, width, Initializer::normal(0.5)),
        left_(scope.child("left"), width, width, Initializer::normal(0.5)),
        summary_(scope.leaves_value("summary")) {}
  Variable operator()(const Forward& f, const PartInput& input) const override {
    (*f.values)[static_cast<size_t>(summary_.index)] = left_(f.tape, input.normalised(f.tape));
    return out_(f.tape, input.normalised(f.tape));
  }

 private:
  Linear out_, left_;
  ValueId summary_;
};

class Reads final : public Part {
 public:
  Reads(const Scope& scope, int64_t width, const std::string& path)
      : out_(scope.child("out"), width, width, Initializer::normal(0.5)), summary_(scope.reads_value(path)) {}
  Variable operator()(const Forward& f, const PartInput& input) const override {
    const Variable& read = (*f.values)[static_cast<size_t>(summary_.index)];
    return activation(f.tape, add(f.tape, out_(f.tape, input.normalised(f.tape)), read), ops::Activation::gelu);
  }

 private:
  Linear out_;
  ValueId summary_;
};

SubLayerSpec leaving(int64_t width) {
  return {"leaving", Recompute::attention,
          [width](const Scope& scope, const ModelConfig&) { return std::make_unique<Leaves>(scope, width); }};
}
SubLayerSpec reading(const std::string& name, int64_t width, const std::string& path) {
  return {name, Recompute::attention, [width, path](const Scope& scope, const ModelConfig&) {
            return std::make_unique<Reads>(scope, width, path);
          }};
}

struct TwoBlocks {
  std::vector<NamedTensor> gradients;
  Tensor out;
};

// Block 0 leaves a value and, where it reads, is its own reader; block 1 reads it too, and leaves one that nobody
// reads.
TwoBlocks train(Recompute recompute, bool reads_at_once, bool reads_later) {
  ModelConfig model;
  model.width = 4;
  model.recompute = recompute;
  ParameterStore store;
  Declarations declared;
  const Scope root(store, declared, DType::f32);
  const std::string path = "blocks.0.leaving.summary";
  std::vector<SubLayerSpec> first{leaving(model.width)};
  if (reads_at_once) first.push_back(reading("reading", model.width, path));
  std::vector<SubLayerSpec> second;
  if (reads_later) second.push_back(reading("reading", model.width, path));
  second.push_back(leaving(model.width));
  if (reads_later) second.push_back(reading("again", model.width, path));
  const Block a(root.child("blocks", 0), model, first);
  const Block b(root.child("blocks", 1), model, second);
  store.allocate(DType::f32, kCpu, 1);
  StatePool pool(declared.state, 2, 3, DType::f32, kCpu);
  const Batch batch = one_segment(2, 3, {1, 1});
  pool.begin_step(batch);
  Tape tape;
  const StateView view = pool.view(0, 2);
  const Forward f{.tape = tape,
                  .batch = batch,
                  .state = view,
                  .training = true,
                  .values = std::make_shared<std::vector<Variable>>(declared.values.size())};
  RandomTensors random(5);
  const Variable x = Variable::leaf(random.normal({2, 3, 4}, 1, 0, DType::f32));
  const Variable y = b(f, a(f, x));
  TwoBlocks result{{}, clone(y.value())};
  tape.backward({{weighted_sum(tape, y, random.normal({2, 3, 4}, 1, 0, DType::f32)), 1.0}});
  result.gradients.push_back({"x", clone(x.gradient()->value())});
  for (const ParameterStore::Entry& entry : store.entries()) {
    result.gradients.push_back({entry.name, clone(ParameterStore::slice(store.gradients(), entry))});
  }
  return result;
}

double largest(const Tensor& tensor) {
  double max_size = 0;
  for (const double value : values_of(tensor)) max_size = std::max(max_size, std::abs(value));
  return max_size;
}

TEST(PassedValues, RecomputationChangesNoGradient) {
  for (const auto& [at_once, later] : {std::pair{true, true}, {true, false}, {false, true}, {false, false}}) {
    const TwoBlocks expected = train(Recompute::none, at_once, later);
    for (const NamedTensor& gradient : expected.gradients) {
      if (gradient.name != "blocks.0.leaving.left.weight") continue;
      // It learns through the value alone.
      EXPECT_EQ(largest(gradient.tensor) > 0, at_once || later);
    }
    for (const Recompute recompute : {Recompute::blocks, Recompute::attention}) {
      SCOPED_TRACE(fmt::format("{} at once {} later {}", name_in_config(recompute), at_once, later));
      const TwoBlocks got = train(recompute, at_once, later);
      EXPECT_TRUE(same_bits(got.out, expected.out));
      ASSERT_EQ(got.gradients.size(), expected.gradients.size());
      for (size_t i = 0; i < expected.gradients.size(); ++i) {
        EXPECT_EQ(got.gradients[i].name, expected.gradients[i].name);
        EXPECT_TRUE(same_bits(got.gradients[i].tensor, expected.gradients[i].tensor)) << expected.gradients[i].name;
      }
    }
  }
}

TEST(PassedValues, WhatNobodyLeavesCannotBeRead) {
  ParameterStore store;
  Declarations declared;
  const Scope root(store, declared, DType::f32);
  const Scope reader = root.child("blocks", 1).child("reading");
  EXPECT_ERROR(reader.reads_value("blocks.0.leaving.summary"), ErrorKind::internal,
               "blocks.1.reading reads the value blocks.0.leaving.summary, which no layer before it leaves");
  const ValueId left = root.child("blocks", 0).child("leaving").leaves_value("summary");
  EXPECT_EQ(reader.reads_value("blocks.0.leaving.summary").index, left.index);
  EXPECT_ERROR(reader.reads_value("blocks.0.leaving.sum"), ErrorKind::internal, "blocks.0.leaving.sum, which no layer");
}

}  // namespace
}  // namespace quire::test
