#include "trainers/step/step.h"

#include <cstdlib>
#include <map>
#include <sstream>

#include "core/check.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "trainers/step/exchange_timer.h"
#include "trainers/step/nonfinite.h"

namespace quire {

namespace {

// Appends the mean of each name over the blocks of rows of this rank.
void add_means(Telemetry& to, const Telemetry& from) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const auto& [name, value] : from) {
    sums[name].first += value;
    ++sums[name].second;
  }
  for (const auto& [name, sum] : sums) to.emplace_back(name, sum.first / sum.second);
}

// Returns the mean of each name over the ranks that report it.
Telemetry mean_over_ranks(const Telemetry& mine, Ranks& ranks) {
  if (ranks.size() == 1) return mine;
  std::string text;
  for (const auto& [name, value] : mine) text += fmt::format("{} {:a}\n", name, value);
  Telemetry all;
  for (const std::string& of_rank : ranks.gather(text)) {
    std::istringstream lines(of_rank);
    std::string name, value;
    while (lines >> name >> value) all.emplace_back(name, std::strtod(value.c_str(), nullptr));
  }
  Telemetry means;
  add_means(means, all);
  return means;
}

// Sums gradients, losses and the counts of learners over all ranks, and returns the square of the gradient's norm.
Tensor reduce_step(TrainingState& training, const Tensor& sums, Ranks& ranks, double& exchange_seconds) {
  const std::vector<ArenaRange>& mine = training.parts->mine();
  if (ranks.size() == 1) return squared_gradient_norm(training.store, mine);
  const Ranks::Operation operation(ranks, "summing gradients");
  {
    const ExchangeTimer timer(exchange_seconds);
    training.reducer->flush(ranks);
    for (const Learner* learner : training.network.model.learners()) {
      for (const Tensor& sum : learner->sums()) ranks.collectives().all_reduce(sum);
    }
    ranks.collectives().all_reduce(sums);
    ranks.collectives().wait();
  }
  Tensor norm = squared_gradient_norm(training.store, mine);
  const ExchangeTimer timer(exchange_seconds);
  ranks.collectives().all_reduce(norm);
  ranks.collectives().wait();
  return norm;
}

}  // namespace

void accumulate_gradients(TrainingState& training, const RunConfig& config, const Batch& batch,
                          const std::vector<double>& counts,
                          const std::function<void(int64_t begin, int64_t end, const LossTerms&)>& on_loss,
                          Ranks& ranks, Telemetry* telemetry) {
  const Ranks::Operation operation(ranks, "computing gradients");
  training.state->begin_step(batch);
  training.store.zero_gradients();
  std::vector<double> seeds;  // factors that turn each sum into a mean over the step
  for (const double count : counts) seeds.push_back(count > 0 ? 1 / count : 0.0);
  const auto seed = static_cast<uint64_t>(config.run.seed);
  for (int64_t block = 0, blocks = std::min(config.data.accumulate, batch.rows); block < blocks; ++block) {
    const int64_t begin = batch.rows * block / blocks;
    const int64_t end = batch.rows * (block + 1) / blocks;
    const Batch part = blocks == 1 ? batch : batch.row_block(begin, end);
    Tape tape;
    const Forward forward{.tape = tape,
                          .batch = part,
                          .state = training.state->view(begin, end),
                          .key = RandomKey::of(seed, training.step + 1),
                          .position_key = RandomKey::of(seed, training.step / config.model.dropout.position_steps + 1),
                          .training = true,
                          .several_documents = config.data.pack == Pack::concat,
                          .write_state = true,
                          .attention = &training.attention,
                          .telemetry = telemetry,
                          .loss_seeds = {seeds.begin() + 1, seeds.end()},
                          .nll_seed = seeds[0],
                          .extras = config.loss.extras()};
    const LossTerms loss = training.network.model.loss(forward);
    on_loss(begin, end, loss);
    if (training.reducer && ranks.size() > 1 && block + 1 == blocks) training.reducer->watch(tape, ranks);
    tape.backward({{loss.terms[0].sum, seeds[0]}});
  }
}

StepResult train_step(TrainingState& training, const RunConfig& config, const Batch& batch, Ranks& ranks,
                      ReadResult read) {
  const int64_t step = training.step + 1;
  ranks.set_step(step);
  const bool skips = config.run.on_nonfinite.policy == NonfinitePolicy::skip;
  const Device device = training.store.values().device();
  StepResult result;
  const int64_t update = step - training.skipped;
  result.learning_rate = learning_rate(config.schedule, peak_learning_rate(config.optimizer, update), step);

  // Counts of the whole batch come first, so that every gradient is scaled exactly.
  StepCounts begun = begin_step(training.network.model, config, batch, step, update);
  std::vector<double>& counts = begun.counts;
  {
    const Ranks::Operation operation(ranks, "counting targets");
    const ExchangeTimer timer(result.exchange_seconds);
    ranks.sum(counts);
  }
  result.targets = static_cast<int64_t>(counts[0]);

  const std::vector<Learner*>& learners = training.network.model.learners();
  const Tensor sums = Tensor::zeros({static_cast<int64_t>(counts.size())}, DType::f64, device);
  std::vector<BlockLosses> blocks;
  Telemetry seen;
  accumulate_gradients(
      training, config, batch, counts,
      [&](int64_t begin, int64_t end, const LossTerms& loss) {
        for (size_t i = 0; i < loss.terms.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const Tensor sum = sums.slice(0, at, at + 1);
          ops::add(sum, sum, loss.terms[i].sum.value(), 1, 1);
        }
        if (skips) blocks.push_back({begin, end, loss.nll});
      },
      ranks, read == ReadResult::always ? &seen : nullptr);
  const Tensor squared_norm = reduce_step(training, sums, ranks, result.exchange_seconds);

  // The device of the gradients decides whether the step is applied, with the same result on every rank.
  ops::step_outcome(training.outcome, sums.slice(0, 0, 1), squared_norm,
                    {.targets = counts[0],
                     .clip = config.optimizer.clip,
                     .largest_norm = largest_gradient_norm(training.store.values().dtype()),
                     .step = static_cast<double>(step),
                     .sticky = !skips});
  const Tensor control = training.outcome.slice(0, outcome::kGradientScale, outcome::kApply + 1);
  const Ranks::Operation operation(ranks, "updating weights");
  training.optimizer->update(update, result.learning_rate, control);
  if (training.reducer) {
    const ExchangeTimer timer(result.exchange_seconds);
    training.reducer->gather_values(ranks);
  }
  training.store.publish();
  for (Learner* learner : learners) learner->update(control);
  if (training.average) training.average->update(update, control);
  if (training.reducer) result.overlap = training.reducer->overlap();
  result.read = read == ReadResult::always || skips || !device_backend(device.kind).is_asynchronous();
  if (result.read) {
    if (!skips) require_finite(training);
    const std::vector<double> judged = training.outcome.to_vector<double>();
    result.loss = judged[outcome::kLoss];
    result.grad_norm = judged[outcome::kGradientNorm];
    const std::vector<double> totals = sums.to_vector<double>();
    for (size_t i = 1; i < counts.size(); ++i) {
      result.telemetry.emplace_back(begun.names[i], counts[i] > 0 ? totals[i] / counts[i] : 0.0);
    }
    if (read == ReadResult::always) {
      Telemetry mine;
      add_means(mine, seen);
      const Telemetry means = [&] {
        const ExchangeTimer timer(result.exchange_seconds);
        return mean_over_ranks(mine, ranks);
      }();
      result.telemetry.insert(result.telemetry.end(), means.begin(), means.end());
      for (const Learner* learner : learners) learner->report(result.telemetry);
    }
    if (judged[outcome::kApply] == 0) {
      result.skipped = true;
      result.cleared_rows = skip_step(training, config, blocks, ranks, result.loss, result.grad_norm);
    }
  }
  if (!result.skipped) {
    training.state->commit();
    training.skips_in_a_row = 0;
  }
  training.step = step;
  training.tokens += result.targets;
  return result;
}

}  // namespace quire
