#include "trainers/setup/training_state.h"

#include "kernels/optimizer.h"

namespace quire {

TrainingState::TrainingState(const RunConfig& config, int64_t vocabulary, const Machine& machine,
                             const RankPlace& place)
    : first_row(config.data.rows * place.rank / place.ranks),
      last_row(config.data.rows * (place.rank + 1) / place.ranks),
      network(store, config.model, vocabulary, machine.dtype) {
  store.allocate(machine.dtype, machine.device, static_cast<uint64_t>(config.run.seed));
  parts = std::make_unique<ParameterParts>(store, place, cut_of(config.optimizer));
  optimizer = make_optimizer(store, *parts, config.optimizer);
  if (place.ranks > 1) reducer = std::make_unique<GradientReducer>(store, *parts);
  if (config.optimizer.ema.decay) {
    average = std::make_unique<WeightAverage>(store, config.model, vocabulary, *config.optimizer.ema.decay);
  }
  state = std::make_unique<StatePool>(network.declared.state, last_row - first_row, config.data.subsequence,
                                      machine.dtype, machine.device, machine.scratch);
  outcome = Tensor::zeros({outcome::kEntries}, DType::f64, machine.device);
}

}  // namespace quire
