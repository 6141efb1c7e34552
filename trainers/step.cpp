#include "trainers/step.h"

#include <array>
#include <cmath>

#include "core/check.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "trainers/gradient_reducer.h"

namespace quire {

TrainingState::TrainingState(const RunConfig& config, int64_t vocabulary, const Machine& machine,
                             const Communicator& communicator)
    : first_row(config.data.rows * communicator.rank() / communicator.size()),
      last_row(config.data.rows * (communicator.rank() + 1) / communicator.size()),
      network(store, config.model, vocabulary, machine.dtype) {
  store.allocate(machine.dtype, machine.device, static_cast<uint64_t>(config.run.seed));
  optimizer = make_optimizer(store, config.optimizer);
  if (config.optimizer.ema.decay) {
    average = std::make_unique<WeightAverage>(store, config.model, vocabulary, *config.optimizer.ema.decay);
  }
  state = std::make_unique<StatePool>(network.layout, last_row - first_row, config.data.subsequence, machine.dtype,
                                      machine.device);
}

namespace {

// Marks the rows of a block in which the loss of a target is not finite. nll [R * T], 0 where nothing is counted.
void mark_nonfinite_rows(std::span<uint8_t> marks, const Tensor& nll) {
  const Tensor wide = nll.dtype() == DType::f64 ? nll : Tensor::empty(nll.shape(), DType::f64, nll.device());
  if (nll.dtype() != DType::f64) ops::convert(wide, nll);
  const std::vector<double> values = wide.to_vector<double>();
  const size_t length = values.size() / marks.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) marks[i / length] = 1;
  }
}

// Ends the run, or this step without an update.
void skip_step(TrainingState& training, const RunConfig& config, std::span<const uint8_t> nonfinite_rows,
               Communicator& communicator, StepResult& result) {
  const int64_t step = training.step + 1;
  const std::string what =
      fmt::format("step {}: loss {} and gradient norm {} are not finite, or too large for the moments", step,
                  result.loss, result.grad_norm);
  constexpr std::string_view kHint =
      "Resume from the last checkpoint with a lower optimizer.lr or a smaller optimizer.clip";
  if (config.run.on_nonfinite.policy == NonfinitePolicy::stop) {
    fail(ErrorKind::numerics, "{}; weights are those of step {}. {}", what, training.step, kHint);
  }
  if (training.skips_in_a_row >= config.run.on_nonfinite.max_skips) {
    fail(ErrorKind::numerics, "{}, and so were the {} steps before it (run.on_nonfinite.max_skips). {}", what,
         training.skips_in_a_row, kHint);
  }
  training.state->commit(nonfinite_rows);
  result.skipped = true;
  std::array<double, 1> cleared{0};
  for (const uint8_t mark : nonfinite_rows) cleared[0] += mark;
  communicator.all_reduce_sum(cleared);
  result.cleared_rows = static_cast<int64_t>(cleared[0]);
  ++training.skipped;
  ++training.skips_in_a_row;
}

}  // namespace

void accumulate_gradients(TrainingState& training, const RunConfig& config, const Batch& batch,
                          const std::vector<double>& counts,
                          const std::function<void(int64_t begin, int64_t end, const LossTerms&)>& on_loss) {
  training.state->begin_step(batch);
  training.store.zero_gradients();
  const int64_t blocks = std::min(config.data.accumulate, batch.rows);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = batch.rows * block / blocks;
    const int64_t end = batch.rows * (block + 1) / blocks;
    const Batch part = blocks == 1 ? batch : batch.row_block(begin, end);
    Tape tape;
    const StateView view = training.state->view(begin, end);
    const Forward forward{.tape = tape,
                          .batch = part,
                          .state = view,
                          .key = RandomKey::of(static_cast<uint64_t>(config.run.seed), training.step + 1),
                          .training = true,
                          .write_state = true,
                          .nll_seed = counts[0] > 0 ? 1 / counts[0] : 0.0};
    const LossTerms loss = training.network.model.loss(forward);
    on_loss(begin, end, loss);
    std::vector<Tape::Seed> seeds;
    for (size_t i = 0; i < loss.terms.size(); ++i) {
      seeds.push_back({loss.terms[i].sum, counts[i] > 0 ? loss.terms[i].weight / counts[i] : 0.0});
    }
    tape.backward(seeds);
  }
}

StepResult train_step(TrainingState& training, const RunConfig& config, const Batch& batch,
                      Communicator& communicator) {
  const int64_t step = training.step + 1;
  StepResult result;
  const int64_t update = step - training.skipped;
  result.learning_rate = learning_rate(config.schedule, peak_learning_rate(config.optimizer, update), step);

  // Counts of the whole batch come first, so that every gradient is scaled exactly.
  std::vector<double> counts;
  for (const auto& [name, count] : LanguageModel::loss_counts(batch)) counts.push_back(static_cast<double>(count));
  communicator.all_reduce_sum(counts);
  result.targets = static_cast<int64_t>(counts[0]);

  std::vector<double> sums(counts.size());
  std::vector<uint8_t> nonfinite_rows(static_cast<size_t>(batch.rows));
  accumulate_gradients(training, config, batch, counts, [&](int64_t begin, int64_t end, const LossTerms& loss) {
    for (size_t i = 0; i < loss.terms.size(); ++i) sums[i] += loss.terms[i].sum.value().to_vector<double>()[0];
    if (!std::isfinite(sums[0])) {
      mark_nonfinite_rows(
          std::span(nonfinite_rows).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), loss.nll);
    }
  });
  reduce_gradients(training.store.gradients(), communicator);
  communicator.all_reduce_sum(sums);

  const Device device = training.store.values().device();
  const Tensor verdict = Tensor::zeros({outcome::kEntries}, DType::f64, device);
  ops::step_outcome(verdict, Tensor::from(std::vector<double>{sums[0]}, {1}, device),
                    squared_gradient_norm(training.store),
                    {.targets = counts[0],
                     .clip = config.optimizer.clip,
                     .largest_norm = largest_gradient_norm(training.store.values().dtype()),
                     .step = static_cast<double>(step)});
  const std::vector<double> judged = verdict.to_vector<double>();
  result.loss = judged[outcome::kLoss];
  result.grad_norm = judged[outcome::kGradientNorm];
  if (judged[outcome::kApply] != 0) {
    const Tensor control = verdict.slice(0, outcome::kGradientScale, outcome::kApply + 1);
    training.optimizer->update(update, result.learning_rate, control);
    if (training.average) training.average->update(update, control);
    training.state->commit();
    training.skips_in_a_row = 0;
  } else {
    skip_step(training, config, nonfinite_rows, communicator, result);
  }
  training.step = step;
  training.tokens += result.targets;
  return result;
}

}  // namespace quire
