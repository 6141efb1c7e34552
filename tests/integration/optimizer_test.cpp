// Tests optimizers, parameter groups and the average of weights over whole training steps.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/thread_pool.h"
#include "tests/support/compare.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"

namespace quire::test {
namespace {

class OptimizerRuns : public ::testing::Test {
 protected:
  OptimizerRuns() {
    write_corpus(folder_ / "corpus.h5",
                 {{"train", texts_of_lengths({3, 15, 30, 7, 23, 40, 1, 18})}, {"valid", texts_of_lengths({20, 9})}});
    corpus_ = Corpus::open(folder_ / "corpus.h5");
  }
  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

// A mixer with two gates in one parameter.
const std::string kLstmStates =
    "model.attention={kind: block_recurrent, block_recurrent: {window: 2, states: 3, update: dual, gate: lstm}}";

const std::vector<std::vector<std::string>> kOptimizers{
    {"optimizer={kind: adamw, lr: 0.01, groups: [{match: [\"embedding.*\"], weight_decay: 0, lr_scale: 0.1}]}"},
    {"optimizer={kind: adamw, lr: 0.01, ema: {decay: 0.7}}"},
    {"optimizer={kind: adafactor, lr: 0.01}"},
    {"optimizer={kind: adafactor, lr: 0.5, momentum: 0.9, parameter_scale: true, ema: {decay: 0.9}, "
     "groups: [{match: [\"*.mlp.*\"], lr_scale: 2}]}"},
    {"optimizer={kind: adafactor, relative_step: true, parameter_scale: true}", "schedule={kind: constant, warmup: 0}"},
    {"optimizer={kind: muon, lr: 0.01}"},
    {"optimizer={kind: muon, lr: 0.01, momentum: 0.8, nesterov: false, ns_steps: 3, ema: {decay: 0.9}, groups: "
     "[{match: [\"*.mlp.*\"], lr_scale: 0.5}]}",
     "data.accumulate=2", kLstmStates},
};

TEST_F(OptimizerRuns, ResumeBitForBitAndLearnOnAnyNumberOfThreads) {
  for (const std::vector<std::string>& settings : kOptimizers) {
    std::vector<std::string> all = settings;
    all.emplace_back("run.precision=f32");
    const RunConfig config = mechanism_config(all);
    SCOPED_TRACE(settings.front());
    TrainingRun straight(config, *corpus_);
    const std::vector<double> losses = straight.losses(12);
    EXPECT_LT(losses.back(), losses.front());
    const RunSnapshot expected = straight.snapshot();

    ThreadPool pool(2);
    const ThreadPool::Use use(pool);
    TrainingRun first(config, *corpus_);
    first.losses(5);
    const RunSnapshot saved = first.snapshot();
    TrainingRun second(config, *corpus_, first.save(folder_ / "checkpoints"));
    EXPECT_EQ(difference(saved, second.snapshot()), "");
    EXPECT_EQ(second.losses(7), std::vector<double>(losses.begin() + 5, losses.end()));
    EXPECT_EQ(difference(expected, second.snapshot()), "");
  }
}

// From the same weights and gradients, one step with a group changes the parameters of the group and no others.
TEST_F(OptimizerRuns, AGroupChangesItsParametersOnly) {
  const std::string plain = "optimizer={lr: 0.01, weight_decay: 0.5, clip: 0}";
  const std::string grouped =
      "optimizer={lr: 0.01, weight_decay: 0.5, clip: 0, groups: [{match: [\"embedding.*\"], lr_scale: 0}, "
      "{match: [\"blocks.1.*\"], weight_decay: 0, lr_scale: 0.5}]}";
  TrainingRun a(mechanism_config({plain, "schedule={kind: constant, warmup: 0}"}), *corpus_);
  TrainingRun b(mechanism_config({grouped, "schedule={kind: constant, warmup: 0}"}), *corpus_);
  const std::vector<std::string> names = [&] {
    std::vector<std::string> list;
    for (const auto& entry : a.training().store.entries()) list.push_back(entry.name);
    return list;
  }();
  std::vector<Tensor> before;
  for (const auto& entry : a.training().store.entries()) before.push_back(clone(entry.variable.value()));
  a.step();
  b.step();
  int halved = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& entry_a = a.training().store.entries()[i];
    const Tensor& x = entry_a.variable.value();
    const Tensor& y = b.training().store.entries()[i].variable.value();
    if (names[i].rfind("embedding.", 0) == 0) {
      EXPECT_TRUE(same_bits(y, before[i])) << names[i];
      EXPECT_FALSE(same_bits(x, before[i])) << names[i];
    } else if (names[i].rfind("blocks.1.", 0) == 0) {
      // w - 0.01 (u + d w) against w - 0.005 u: twice the second step is the first without its decay.
      const double decay = entry_a.decays ? 0.01 * 0.5 : 0;
      const std::vector<double> from = values_of(before[i]);
      const std::vector<double> whole = values_of(x);
      const std::vector<double> half = values_of(y);
      for (size_t j = 0; j < from.size(); ++j) {
        EXPECT_NEAR(2 * (half[j] - from[j]), whole[j] - from[j] + decay * from[j], 1e-9) << names[i];
      }
      ++halved;
    } else {
      EXPECT_TRUE(same_bits(x, y)) << names[i];
    }
  }
  EXPECT_GT(halved, 3);
}

// A learning rate of 0 leaves a decay that is not multiplied by it: weights of matrices keep three quarters.
TEST_F(OptimizerRuns, DecayWithoutTheRateDoesNotDependOnIt) {
  for (const std::string kind : {"adamw", "adafactor", "muon"}) {
    SCOPED_TRACE(kind);
    TrainingRun run(mechanism_config({"optimizer={kind: " + kind +
                                      ", lr: 0, weight_decay: 0.25, decay_with_rate: false, groups: "
                                      "[{match: [\"embedding.*\"], lr_scale: 0.5}]}"}),
                    *corpus_);
    std::vector<Tensor> before;
    for (const auto& entry : run.training().store.entries()) before.push_back(clone(entry.variable.value()));
    run.step();
    int decayed = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const auto& entry = run.training().store.entries()[i];
      const bool halved = entry.name.rfind("embedding.", 0) == 0;
      const double share = !entry.decays ? 0 : halved ? 0.125 : 0.25;
      const std::vector<double> from = values_of(before[i]);
      const std::vector<double> to = values_of(entry.variable.value());
      for (size_t j = 0; j < from.size(); ++j) EXPECT_NEAR(to[j], (1 - share) * from[j], 1e-7) << entry.name;
      decayed += entry.decays ? 1 : 0;
    }
    EXPECT_GT(decayed, 3);
  }
}

// average_n = average_{n-1} + (1 - keep_n) (w_n - average_{n-1}), keep_n = min(decay, (1 + n) / (10 + n)).
TEST_F(OptimizerRuns, TheAverageFollowsTheWeights) {
  TrainingRun run(mechanism_config({"optimizer={lr: 0.01, ema: {decay: 0.25}}"}), *corpus_);
  std::vector<double> average = values_of(run.training().store.values());
  for (int n = 1; n <= 4; ++n) {
    run.step();
    const std::vector<double> weights = values_of(run.training().store.values());
    const double keep = std::min(0.25, (1.0 + n) / (10.0 + n));
    EXPECT_EQ(keep == 0.25, n >= 2);
    for (size_t i = 0; i < weights.size(); ++i) average[i] = keep * average[i] + (1 - keep) * weights[i];
    const std::vector<double> kept = values_of(run.training().average->store().values());
    for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(kept[i], average[i], 1e-7) << n;
  }
}

// Muon as published, by loops over one matrix: Newton-Schulz steps on the momentum divided by its norm.
std::vector<double> orthogonal_by_definition(std::vector<double> x, size_t n, size_t m, int steps) {
  double norm = 0;
  for (const double value : x) norm += value * value;
  for (double& value : x) value /= std::sqrt(norm);
  const auto times = [](const std::vector<double>& a, const std::vector<double>& b, size_t rows, size_t inner,
                        size_t columns) {
    std::vector<double> c(rows * columns);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t k = 0; k < inner; ++k) {
        for (size_t j = 0; j < columns; ++j) c[i * columns + j] += a[i * inner + k] * b[k * columns + j];
      }
    }
    return c;
  };
  for (int step = 0; step < steps; ++step) {
    std::vector<double> transposed(n * m);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < m; ++j) transposed[j * n + i] = x[i * m + j];
    }
    const std::vector<double> third = times(times(x, transposed, n, m, n), x, n, n, m);
    const std::vector<double> fifth = times(times(third, transposed, n, m, n), x, n, n, m);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] - 4.7750 * third[i] + 2.0315 * fifth[i];
  }
  return x;
}

// Weights after a step with momentum 0.9 and a weight decay of 0.5. momentum becomes that of the step.
std::vector<double> weights_by_definition(const ParameterStore::Entry& entry, std::vector<double> weights,
                                          std::vector<double>& momentum, const std::vector<double>& gradient,
                                          bool nesterov, double lr) {
  std::vector<double> u = gradient;
  momentum.resize(u.size());
  for (size_t i = 0; i < u.size(); ++i) {
    momentum[i] = 0.9 * momentum[i] + gradient[i];
    u[i] = nesterov ? gradient[i] + 0.9 * momentum[i] : momentum[i];
  }
  const auto rows = static_cast<size_t>(entry.shape[0] / entry.matrices);
  const auto columns = static_cast<size_t>(entry.shape[1]);
  const double rate = lr * 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
  for (size_t begin = 0; begin < u.size(); begin += rows * columns) {
    const auto at = u.begin() + static_cast<int64_t>(begin);
    const std::vector<double> o =
        orthogonal_by_definition({at, at + static_cast<int64_t>(rows * columns)}, rows, columns, 5);
    for (size_t i = 0; i < o.size(); ++i) weights[begin + i] = weights[begin + i] * (1 - lr * 0.5) - rate * o[i];
  }
  return weights;
}

TEST_F(OptimizerRuns, MuonIsThatOfItsDefinition) {
  const std::string settings =
      "lr: 0.02, weight_decay: 0.5, clip: 0, groups: [{match: [\"blocks.1.*\"], lr_scale: 0.5}]}";
  const std::string constant = "schedule={kind: constant, warmup: 0}";
  for (const bool nesterov : {true, false}) {
    const std::string kind = nesterov ? "kind: muon, momentum: 0.9, " : "kind: muon, momentum: 0.9, nesterov: false, ";
    TrainingRun run(mechanism_config({"optimizer={" + kind + settings, constant, kLstmStates}), *corpus_);
    // AdamW alone gives parameters that are no matrices the same first step.
    TrainingRun adamw(mechanism_config({"optimizer={" + settings, constant, kLstmStates}), *corpus_);
    adamw.step();
    const ParameterStore& store = run.training().store;
    std::vector<std::vector<double>> momentum(store.entries().size());
    int matrices = 0, stacked = 0;
    for (int step = 1; step <= 3; ++step) {
      std::vector<std::vector<double>> before;
      for (const auto& entry : store.entries()) before.push_back(values_of(entry.variable.value()));
      run.step();
      for (size_t e = 0; e < store.entries().size(); ++e) {
        const auto& entry = store.entries()[e];
        const Tensor& value = entry.variable.value();
        if (entry.matrices == 0 && step == 1) {
          EXPECT_TRUE(same_bits(value, adamw.training().store.entries()[e].variable.value())) << entry.name;
        }
        if (entry.matrices == 0) continue;
        const std::vector<double> expected = weights_by_definition(
            entry, before[e], momentum[e], values_of(ParameterStore::slice(store.gradients(), entry)), nesterov,
            entry.name.starts_with("blocks.1.") ? 0.01 : 0.02);
        const std::vector<double> after = values_of(value);
        for (size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], expected[i], 1e-9) << entry.name << " " << step;
        ++matrices;
        stacked += entry.matrices > 1 ? 1 : 0;
      }
    }
    EXPECT_GT(matrices, 30);
    EXPECT_EQ(stacked, 3 * 2 * 2);  // two gates of each layer
  }
}

// Embeddings, the projection to the vocabulary, gains and biases keep two moments, matrices one.
TEST_F(OptimizerRuns, MuonKeepsOneMomentOfAMatrix) {
  TrainingRun run(mechanism_config({"optimizer={kind: muon}", "model.embedding={tied: false}"}), *corpus_);
  int64_t expected = 0;
  std::set<std::string> names;
  for (const auto& entry : run.training().store.entries()) {
    const bool is_matrix =
        entry.name.starts_with("blocks.") && entry.shape.rank() == 2 && !entry.name.ends_with(".bias");
    EXPECT_EQ(entry.matrices, is_matrix ? 1 : 0) << entry.name;
    expected += entry.shape.numel() * (is_matrix ? 1 : 2);
    names.insert("m." + entry.name);
    if (!is_matrix) names.insert("v." + entry.name);
  }
  EXPECT_EQ(run.training().optimizer->bytes(), expected * 8);
  std::set<std::string> saved;
  for (const NamedTensor& tensor : run.training().optimizer->save()) saved.insert(tensor.name);
  EXPECT_EQ(saved, names);
  EXPECT_TRUE(saved.contains("v.head.weight"));
  EXPECT_FALSE(saved.contains("v.blocks.0.mlp.up.weight"));
}

TEST_F(OptimizerRuns, AdafactorKeepsTwoVectorsOfAMatrix) {
  TrainingRun run(mechanism_config({"optimizer={kind: adafactor}"}), *corpus_);
  int64_t expected = 0;
  for (const auto& entry : run.training().store.entries()) {
    const Shape& shape = entry.shape;
    expected += shape.rank() < 2 ? shape.numel() : shape.numel() / shape[shape.rank() - 1] + shape[shape.rank() - 1];
  }
  const auto width = static_cast<int64_t>(size_of(run.training().store.values().dtype()));
  EXPECT_EQ(run.training().optimizer->bytes(), expected * width);
  EXPECT_LT(expected, run.training().store.parameter_count() / 2);
}

}  // namespace
}  // namespace quire::test
