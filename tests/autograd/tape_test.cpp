#include "autograd/tape.h"

#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/recompute.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

Tensor vector_of(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

Tensor ones(int64_t count) {
  return vector_of(std::vector<double>(static_cast<size_t>(count), 1));
}

std::vector<double> gradient_of(const Variable& leaf) {
  return leaf.gradient()->value().to_vector<double>();
}

TEST(Tape, AddsUpTheUsesOfAVariable) {
  const Variable x = Variable::leaf(vector_of({1, -2, 3}));
  Tape tape;
  const Variable y = add(tape, multiply(tape, x, x), scale(tape, x, 3));
  tape.backward({{weighted_sum(tape, y, ones(3)), 1.0}});
  EXPECT_EQ(gradient_of(x), (std::vector<double>{5, -1, 9}));
}

// add() hands one tensor to both of its inputs: whoever adds to it later must not change what the other holds.
TEST(Tape, AdoptedGradientsAreCopiedOnWrite) {
  const Tensor weights = vector_of({2, 3});
  {
    const Variable a = Variable::leaf(vector_of({1, 1}));
    const Variable b = Variable::leaf(vector_of({1, 1}));
    Tape tape;
    const Variable early = scale(tape, a, 10);  // swept last: adds to what a adopted
    const Variable y = add(tape, early, add(tape, a, b));
    tape.backward({{weighted_sum(tape, y, weights), 1.0}});
    EXPECT_EQ(gradient_of(a), (std::vector<double>{22, 33}));
    EXPECT_EQ(gradient_of(b), (std::vector<double>{2, 3}));
  }
  {
    // A kernel that accumulates in place (linear) instead of add().
    const Variable a = Variable::leaf(vector_of({1, 1}).reshape({1, 2}));
    const Variable b = Variable::leaf(vector_of({1, 1}).reshape({1, 2}));
    const Variable w = Variable::constant(vector_of({0, 1, 1, 0}).reshape({2, 2}));
    Tape tape;
    const Variable early = linear(tape, a, w);
    const Variable y = add(tape, early, add(tape, a, b));
    tape.backward({{weighted_sum(tape, y, weights.reshape({1, 2})), 1.0}});
    EXPECT_EQ(gradient_of(a), (std::vector<double>{5, 5}));
    EXPECT_EQ(gradient_of(b), (std::vector<double>{2, 3}));
  }
}

TEST(Tape, ResidualsAddUp) {
  // z = x + f(x) with y = x + x^2, z = y + 3 y + y x: x is used three times, y too.
  const Variable x = Variable::leaf(vector_of({2, -1}));
  Tape tape;
  const Variable y = add(tape, x, multiply(tape, x, x));
  const Variable z = add(tape, add(tape, y, scale(tape, y, 3)), multiply(tape, y, x));
  tape.backward({{weighted_sum(tape, z, ones(2)), 1.0}});
  // z = 4 x + 5 x^2 + x^3
  EXPECT_EQ(gradient_of(x), (std::vector<double>{4 + 20 + 12, 4 - 10 + 3}));
}

TEST(Tape, SeedsAreWeighted) {
  const Variable x = Variable::leaf(vector_of({1, 2}));
  Tape tape;
  const Variable first = weighted_sum(tape, x, vector_of({1, 0}));
  const Variable second = weighted_sum(tape, x, vector_of({0, 1}));
  const Variable unrelated = Variable::constant(vector_of({5}));
  tape.backward({{first, 2.0}, {second, -3.0}, {unrelated, 7.0}});
  EXPECT_EQ(gradient_of(x), (std::vector<double>{2, -3}));
}

TEST(Tape, ParametersAccumulateInTheirArena) {
  const Tensor arena = Tensor::zeros({6}, DType::f64);
  const Variable w(vector_of({1, 2}), Gradient::into(arena.slice(0, 2, 4)));
  for (int step = 0; step < 2; ++step) {
    Tape tape;
    const Variable y = add(tape, w, scale(tape, w, 2));
    tape.backward({{weighted_sum(tape, y, vector_of({1, 10})), 1.0}});
  }
  EXPECT_EQ(arena.to_vector<double>(), (std::vector<double>{0, 0, 6, 60, 0, 0}));
}

TEST(Tape, FreesEachRecordAsItIsUsed) {
  const Variable x = Variable::leaf(vector_of({1}));
  Tape tape;
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = owner;
  bool freed_before_earlier_record = false;

  const Variable first = tape.result("first", vector_of({1}), {&x},
                                     [&](const Tensor&) { freed_before_earlier_record = watched.expired(); });
  const Variable second = tape.result("second", vector_of({1}), {&first},
                                      [owner, to = first.gradient()](const Tensor& dout) { to->add(dout); });
  owner.reset();
  EXPECT_EQ(tape.size(), 2U);
  EXPECT_FALSE(watched.expired());
  tape.backward({{second, 1.0}});
  EXPECT_TRUE(freed_before_earlier_record);
  EXPECT_EQ(tape.size(), 0U);
}

TEST(Tape, GradientsOfResultsAreFreed) {
  const Variable x = Variable::leaf(vector_of({1, 2}));
  Tape tape;
  const Variable y = scale(tape, x, 2);
  tape.backward({{weighted_sum(tape, y, ones(2)), 1.0}});
  EXPECT_FALSE(y.gradient()->has_value());
  EXPECT_TRUE(x.gradient()->has_value());
}

TEST(Tape, WithoutRecordingNothingIsSaved) {
  const Variable x = Variable::leaf(RandomTensors(1).normal({3, 5}));
  const Variable w = Variable::leaf(RandomTensors(2).normal({5}));
  Tape tape(false);
  const int64_t uses = x.value().use_count();
  const Variable y = rms_norm(tape, multiply(tape, x, x), w, 1e-5);
  EXPECT_EQ(tape.size(), 0U);
  EXPECT_FALSE(y.needs_gradient());
  EXPECT_EQ(x.value().use_count(), uses);
  EXPECT_EQ(y.value().use_count(), 1);
}

TEST(Tape, ConstantsAreNotRecorded) {
  const Variable c = Variable::constant(vector_of({1, 2}));
  Tape tape;
  EXPECT_FALSE(add(tape, c, c).needs_gradient());
  EXPECT_EQ(tape.size(), 0U);
  const Variable x = Variable::leaf(vector_of({3, 4}));
  EXPECT_FALSE(scale(tape, x.detached(), 2).needs_gradient());
  EXPECT_EQ(tape.size(), 0U);
  EXPECT_TRUE(multiply(tape, c, x).needs_gradient());
  EXPECT_EQ(tape.size(), 1U);
}

TEST(Tape, UnusedBranchesAreSkipped) {
  const Variable x = Variable::leaf(vector_of({1, 2}));
  Tape tape;
  const Variable unused = multiply(tape, x, x);
  tape.backward({{weighted_sum(tape, scale(tape, x, 2), ones(2)), 1.0}});
  EXPECT_EQ(gradient_of(x), (std::vector<double>{2, 2}));
  EXPECT_FALSE(unused.gradient()->has_value());
}

// Parameters, the names of those whose last use has passed, and the names at the moment a record is swept.
struct LastUses {
  Tensor arena = Tensor::zeros({6}, DType::f64);
  std::vector<Variable> parameters;
  std::vector<size_t> passed;

  LastUses() {
    for (int64_t i = 0; i < 3; ++i) {
      parameters.emplace_back(vector_of({1, 2}), Gradient::into(arena.slice(0, 2 * i, 2 * i + 2)));
    }
  }
  void watch(Tape& tape) {
    tape.on_last_use([this](const std::shared_ptr<Gradient>& gradient) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].gradient() == gradient) passed.push_back(i);
      }
    });
  }
  // Its gradient as it was when the last use had passed and an earlier record was swept.
  Variable observe(Tape& tape, const Variable& x, std::vector<size_t>& seen) {
    return tape.result("observe", x.value(), {&x}, [this, &seen, dx = x.gradient()](const Tensor& dout) {
      seen = passed;
      dx->add(dout);
    });
  }
};

TEST(Tape, TellsTheLastUseOfAParameterWhileTheSweepRuns) {
  LastUses uses;
  const auto& [a, b, c] = std::tie(uses.parameters[0], uses.parameters[1], uses.parameters[2]);
  Tape tape;
  uses.watch(tape);
  std::vector<size_t> at_first;
  std::vector<size_t> at_second;
  Variable x = multiply(tape, a, b);  // a and b are used again
  x = uses.observe(tape, x, at_first);
  x = add(tape, x, b);
  x = uses.observe(tape, x, at_second);
  x = multiply(tape, multiply(tape, x, c), a);
  scale(tape, b, 3);  // nobody uses the result: the record counts as done when the sweep passes it
  tape.backward({{weighted_sum(tape, x, ones(2)), 1.0}});
  EXPECT_EQ(at_second, std::vector<size_t>{2});
  EXPECT_EQ(at_first, std::vector<size_t>{2});
  EXPECT_EQ(uses.passed, (std::vector<size_t>{2, 0, 1}));
}

TEST(Tape, KnowsWhatRecomputationTakesFromParameters) {
  LastUses uses;
  Tape tape;
  uses.watch(tape);
  std::vector<size_t> before_block;
  const Variable first = uses.observe(tape, multiply(tape, uses.parameters[0], uses.parameters[1]), before_block);
  const auto block = [&](Tape& inner, const std::vector<Variable>& in, bool) {
    // A part of a part, which is computed again on its own.
    const auto part = [&](Tape& innermost, const std::vector<Variable>& of_part, bool) {
      return std::vector{multiply(innermost, of_part[0], uses.parameters[2])};
    };
    return std::vector{add(inner, recompute(inner, in, part)[0], uses.parameters[1])};
  };
  const Variable y = recompute(tape, {first}, block)[0];
  tape.backward({{weighted_sum(tape, y, ones(2)), 1.0}});
  EXPECT_EQ(before_block, std::vector<size_t>{2});
  EXPECT_EQ(uses.passed, (std::vector<size_t>{2, 0, 1}));
  EXPECT_EQ(uses.arena.to_vector<double>(), (std::vector<double>{1, 4, 2, 5, 1, 4}));
}

TEST(Tape, RecomputationHandsOnAnInputAndItsGradient) {
  const Variable x = Variable::leaf(vector_of({1, 2}));
  Tape tape;
  const Variable y = recompute(tape, {x}, [](Tape&, const std::vector<Variable>& in, bool) { return in; })[0];
  tape.backward({{weighted_sum(tape, y, vector_of({3, 5})), 1.0}});
  EXPECT_EQ(gradient_of(x), (std::vector<double>{3, 5}));
}

TEST(Tape, RefusesALossThatIsNoScalar) {
  const Variable x = Variable::leaf(vector_of({1, 2}));
  Tape tape;
  const Variable y = scale(tape, x, 2);
  EXPECT_ERROR(tape.backward({{y, 1.0}}), ErrorKind::internal, "backward: the loss must be one f64 value, not f64 [2]");
}

}  // namespace
}  // namespace quire::test
