// Evaluation during training.
#include "core/check.h"
#include "core/log.h"
#include "trainers/run/progress.h"
#include "trainers/run/run_evaluations.h"
#include "trainers/run/run_events.h"
#include "trainers/run/trainer.h"
#include "trainers/step/nonfinite.h"

namespace quire {

bool Trainer::evaluation_due() const {
  const int64_t every = config_.evaluate.every;
  return every > 0 && (training_->step % every == 0 || training_->step == config_.schedule.steps);
}

bool Trainer::needs_evaluation() const {
  if (!evaluation_due()) return false;
  bool found = false;
  ranks_.on_root([&] { found = was_evaluated(directory_.metrics(), training_->step); });
  return ranks_.broadcast_from_root(found ? "yes" : "").empty();
}

ParameterStore& Trainer::evaluated_weights() const {
  return config_.optimizer.ema.evaluate ? training_->average->store() : training_->store;
}

bool Trainer::evaluate_now(const std::function<std::string()>& stop) {
  require_finite(*training_);
  ParameterStore& store = evaluated_weights();
  std::unique_ptr<Progress> progress;
  const EvaluationResult result = evaluate(store, evaluation_config_, *corpus_, machine_,
                                           {.split = config_.evaluate.split,
                                            .rows = config_.evaluate.rows,
                                            .documents = config_.evaluate.documents,
                                            .tokens = config_.evaluate.tokens,
                                            .progress =
                                                [&](int64_t done, int64_t total) {
                                                  if (!progress)
                                                    progress = std::make_unique<Progress>("evaluate", total);
                                                  progress->update(done);
                                                },
                                            .stop = [&] { return !ask(stop).empty(); },
                                            .bin_width = 0,
                                            .ranks = &ranks_});
  progress.reset();
  if (!result.complete) return false;
  if (ranks_.is_root()) record(result);
  return true;
}

void Trainer::record(const EvaluationResult& result) {
  const std::string weights = config_.optimizer.ema.evaluate ? "average" : "trained";
  nlohmann::ordered_json line{{"step", training_->step}};
  line["evaluation"] = to_json(result, evaluation_config_, config_.evaluate.rows);
  line["evaluation"]["weights"] = weights;
  append_line(line);
  if (events_) append_histograms(*events_, training_->step, result, evaluated_weights());
  try_to_store_run_evaluation(directory_.path(),
                              stored_evaluation(result, evaluation_config_, *corpus_, weights,
                                                {training_->step, training_->tokens, train_seconds_}));
  std::string text = fmt::format("step {}: split {}, {} documents: loss {:.4f}", training_->step,
                                 config_.evaluate.split, result.documents.size(), result.loss());
  if (result.has_text) text += fmt::format(" ({:.4f} bits/byte)", result.bits_per_byte());
  text += line_.recent_losses();
  if (result.recall && result.recall->tokens > 0) {
    text += fmt::format(", {:.1f} % of {} recalled tokens",
                        100 * static_cast<double>(result.recall->correct) / static_cast<double>(result.recall->tokens),
                        result.recall->tokens);
  }
  log_info(text);
}

}  // namespace quire
