#include "trainers/step.h"

#include <cmath>

#include "core/check.h"
#include "trainers/gradient_reducer.h"

namespace quire {

TrainingState::TrainingState(const RunConfig& config, int64_t vocabulary, const Machine& machine,
                             const Communicator& communicator)
    : first_row(config.data.rows * communicator.rank() / communicator.size()),
      last_row(config.data.rows * (communicator.rank() + 1) / communicator.size()),
      network(store, config.model, vocabulary, machine.dtype) {
  store.allocate(machine.dtype, machine.device, static_cast<uint64_t>(config.run.seed));
  optimizer = std::make_unique<Optimizer>(store, config.optimizer);
  state = std::make_unique<StatePool>(network.layout, last_row - first_row, config.data.subsequence, machine.dtype,
                                      machine.device);
}

StepResult train_step(TrainingState& training, const RunConfig& config, const Batch& batch,
                      Communicator& communicator) {
  const int64_t step = training.step + 1;
  StepResult result;
  result.learning_rate = learning_rate(config.schedule, config.optimizer.lr, step);

  // Counts of the whole batch come first, so that every gradient is scaled exactly.
  std::vector<double> counts;
  for (const auto& [name, count] : LanguageModel::loss_counts(batch)) counts.push_back(static_cast<double>(count));
  communicator.all_reduce_sum(counts);
  result.targets = static_cast<int64_t>(counts[0]);

  training.state->begin_step(batch);
  training.store.zero_gradients();
  std::vector<double> sums(counts.size());
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
                          .key = RandomKey::of(static_cast<uint64_t>(config.run.seed), step),
                          .training = true,
                          .write_state = true,
                          .nll_seed = counts[0] > 0 ? 1 / counts[0] : 0.0};
    const LossTerms loss = training.network.model.loss(forward);
    std::vector<Tape::Seed> seeds;
    for (size_t i = 0; i < loss.terms.size(); ++i) {
      const LossTerm& term = loss.terms[i];
      sums[i] += term.sum.value().to_vector<double>()[0];
      seeds.push_back({term.sum, counts[i] > 0 ? term.weight / counts[i] : 0.0});
    }
    tape.backward(seeds);
  }
  reduce_gradients(training.store.gradients(), communicator);
  communicator.all_reduce_sum(sums);

  result.loss = counts[0] > 0 ? sums[0] / counts[0] : 0.0;
  result.grad_norm = gradient_norm(training.store);
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    fail(ErrorKind::numerics,
         "step {}: loss {} and gradient norm {} are not finite; weights are those of step {}. Resume from the last "
         "checkpoint with a lower optimizer.lr or a smaller optimizer.clip",
         step, result.loss, result.grad_norm, training.step);
  }
  training.optimizer->update(step, result.learning_rate, clipping_factor(result.grad_norm, config.optimizer.clip));
  training.state->commit();
  training.step = step;
  training.tokens += result.targets;
  return result;
}

}  // namespace quire
