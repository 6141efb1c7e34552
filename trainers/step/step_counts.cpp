#include "trainers/step/step_counts.h"

namespace quire {

StepCounts begin_step(LanguageModel& model, const RunConfig& config, const Batch& batch, int64_t step, int64_t update) {
  StepCounts result;
  for (const auto& [name, count] : model.loss_counts(batch, config.loss.extras())) {
    result.names.push_back(name);
    result.counts.push_back(static_cast<double>(count));
  }
  for (Learner* learner : model.learners()) {
    learner->begin_step({.key = RandomKey::of(static_cast<uint64_t>(config.run.seed), step),
                         .update = update,
                         .rows = config.data.rows,
                         .length = batch.length});
  }
  return result;
}

}  // namespace quire
