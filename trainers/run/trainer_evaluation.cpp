// Evaluation during training.
#include <algorithm>

#include "core/check.h"
#include "core/log.h"
#include "trainers/run/kept_checkpoints.h"
#include "trainers/run/progress.h"
#include "trainers/run/run_events.h"
#include "trainers/run/trainer.h"
#include "trainers/step/nonfinite.h"

namespace quire {

namespace {

// Returns the weights that are evaluated, as stored evaluations and metrics name them.
std::string evaluated_name(const RunConfig& config) {
  return config.optimizer.ema.evaluate ? "average" : "trained";
}

}  // namespace

bool Trainer::evaluation_due() const {
  const int64_t every = config_.evaluate.every;
  if (training_->step == 0) return config_.evaluate.at_start;
  return every > 0 && (training_->step % every == 0 || training_->step == config_.schedule.steps);
}

std::vector<std::string> Trainer::splits_to_evaluate() const {
  std::vector<std::string> splits;
  if (!evaluation_due()) return splits;
  const std::vector<std::string>& all = config_.evaluate.split.names;
  const std::string found = ranks_.found_by_root([&] {
    const std::vector<std::string> missing = not_evaluated(directory_.metrics(), training_->step, all);
    std::string marks;
    for (const std::string& split : all) {
      marks += std::find(missing.begin(), missing.end(), split) != missing.end() ? 'y' : 'n';
    }
    return marks;
  });
  for (size_t i = 0; i < all.size(); ++i) {
    if (found[i] == 'y') splits.push_back(all[i]);
  }
  return splits;
}

ParameterStore& Trainer::evaluated_weights() const {
  return config_.optimizer.ema.evaluate ? training_->average->store() : training_->store;
}

bool Trainer::evaluate_now(const std::vector<std::string>& splits, const std::function<std::string()>& stop) {
  if (splits.empty()) return true;
  require_finite(*training_);
  for (const std::string& split : splits) {
    const EvaluationResult result = evaluate_split(split, stop);
    if (!result.complete) return false;
    const ReplaceBest replace = save_best(result);
    if (ranks_.is_root()) record(result, replace);
  }
  return true;
}

EvaluationResult Trainer::evaluate_split(const std::string& split, const std::function<std::string()>& stop) {
  std::unique_ptr<Progress> progress;
  return evaluate(evaluated_weights(), evaluation_config_, *corpus_, machine_,
                  {.split = split,
                   .rows = config_.evaluate.rows,
                   .documents = config_.evaluate.documents,
                   .tokens = config_.evaluate.tokens,
                   .progress =
                       [&](int64_t done, int64_t total) {
                         if (!progress) progress = std::make_unique<Progress>("evaluate", total);
                         progress->update(done);
                       },
                   .stop = [&] { return !ask(stop).empty(); },
                   .bin_width = 0,
                   .ranks = &ranks_});
}

StoredEvaluation Trainer::stored(const EvaluationResult& result) const {
  return stored_evaluation(result, evaluation_config_, *corpus_, evaluated_name(config_),
                           {training_->step, training_->tokens, train_seconds_});
}

// The checkpoint is whole before the evaluation counts as the best one, and the previous best one goes only then.
ReplaceBest Trainer::save_best(const EvaluationResult& result) {
  if (!config_.checkpoint.best || result.split != config_.evaluate.split.first()) return ReplaceBest::when_lower;
  const auto look = [&] { return becomes_best(directory_.path(), stored(result)) ? "yes" : ""; };
  if (ranks_.found_by_root(look).empty()) return ReplaceBest::never;
  return try_to_save() ? ReplaceBest::always : ReplaceBest::never;
}

// The line of metrics.jsonl is written last: without it a resumed run evaluates again.
void Trainer::record(const EvaluationResult& result, ReplaceBest replace) {
  try_to_store_run_evaluation(directory_.path(), stored(result), replace);
  if (replace == ReplaceBest::always) {
    link_best_of_run(directory_.path(), config_);
    remove_old_checkpoints(directory_.path(), config_);
  }
  nlohmann::ordered_json line{{"step", training_->step}};
  line["evaluation"] = to_json(result, evaluation_config_, config_.evaluate.rows);
  line["evaluation"]["weights"] = evaluated_name(config_);
  metrics_->append(line);
  if (events_) append_events(line, result);
  std::string text = fmt::format("step {}: split {}, {} documents: loss {:.4f}", training_->step, result.split,
                                 result.documents.size(), result.loss());
  if (result.has_text) text += fmt::format(" ({:.4f} bits/byte)", result.bits_per_byte());
  text += line_.recent_losses();
  if (result.recall && result.recall->tokens > 0) {
    text += fmt::format(", {:.1f} % of {} recalled tokens",
                        100 * static_cast<double>(result.recall->correct) / static_cast<double>(result.recall->tokens),
                        result.recall->tokens);
  }
  log_info(text);
}

// The first split has the tags that runs with one split have.
void Trainer::append_events(const nlohmann::ordered_json& line, const EvaluationResult& result) {
  const bool first = result.split == config_.evaluate.split.first();
  const std::string below = first ? "" : "/" + result.split;
  events_->append(line, "evaluation" + below);
  append_losses(*events_, training_->step, result, "documents" + below);
  if (first) append_weights(*events_, training_->step, evaluated_weights());
}

}  // namespace quire
