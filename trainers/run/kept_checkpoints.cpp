#include "trainers/run/kept_checkpoints.h"

#include "core/check.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/run/run_evaluations.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

fs::path checkpoints_of(const fs::path& run_directory) {
  return run_directory / "checkpoints";
}

// Returns the best evaluation when the checkpoint that it evaluated is there. A damaged file counts as none.
std::optional<StoredEvaluation> best_with_checkpoint(const fs::path& run_directory, const std::string& split) {
  std::optional<StoredEvaluation> best;
  try {
    best = read_run_evaluation(run_directory, split, WhichEvaluation::best);
  } catch (const Error&) {
    return std::nullopt;
  }
  std::error_code ignored;
  const bool there =
      best && fs::is_directory(checkpoints_of(run_directory) / checkpoint_name(best->trained.step), ignored);
  return there ? best : std::nullopt;
}

}  // namespace

bool becomes_best(const fs::path& run_directory, const StoredEvaluation& evaluation) {
  const auto best = best_with_checkpoint(run_directory, evaluation.split);
  return !best || !best->reads_what(evaluation) || evaluation.loss() < best->loss();
}

void link_best_of_run(const fs::path& run_directory, const RunConfig& config) {
  std::optional<int64_t> step;
  if (config.checkpoint.best) {
    const auto best = best_with_checkpoint(run_directory, config.evaluate.split.first());
    if (best) step = best->trained.step;
  }
  link_best_checkpoint(checkpoints_of(run_directory), step);
}

void remove_old_checkpoints(const fs::path& run_directory, const RunConfig& config) {
  std::optional<int64_t> best;
  if (config.checkpoint.best) best = linked_best_step(checkpoints_of(run_directory));
  const auto evaluated = best_with_checkpoint(run_directory, config.evaluate.split.first());
  keep_newest_checkpoints(checkpoints_of(run_directory), config.checkpoint.keep, [&](int64_t step) {
    const bool lowest = config.checkpoint.best && evaluated && step == evaluated->trained.step;
    return config.checkpoint.is_milestone(step) || step == best || lowest;
  });
}

}  // namespace quire
