#include "trainers/run/resume_check.h"

#include "core/check.h"
#include "core/log.h"
#include "trainers/run/metrics.h"

namespace quire {

std::optional<int64_t> step_of_written_checkpoint(const RunConfig& config, int64_t last_logged) {
  const int64_t every = config.checkpoint.every;
  if (every > 0 && last_logged > every) return every;
  // The last step's line comes just before the last checkpoint.
  if (last_logged >= config.schedule.steps) return config.schedule.steps;
  return std::nullopt;
}

void require_no_lost_checkpoint(const std::filesystem::path& run_directory, const RunConfig& config) {
  const int64_t logged = last_logged_step(run_directory / "metrics.jsonl", INT64_MAX);
  const std::optional<int64_t> step = step_of_written_checkpoint(config, logged);
  if (!step) return;
  fail(ErrorKind::checkpoint,
       "{}: holds no checkpoint, but its metrics reach step {} and one was due at step {}; put the checkpoints back "
       "into {}, or start a new run with another --run-dir",
       run_directory.string(), logged, *step, (run_directory / "checkpoints").string());
}

void require_steps_left(const RunConfig& config, int64_t step) {
  if (config.schedule.steps >= step) return;
  fail(ErrorKind::config,
       "schedule.steps: {}, but the checkpoint is that of step {}; give a larger number, or resume an earlier "
       "checkpoint",
       config.schedule.steps, step);
}

void require_checkpoint_of_run(const std::filesystem::path& checkpoint, const RunConfig& of_checkpoint,
                               const std::filesystem::path& run_config, const RunConfig& of_run) {
  for (const ConfigDifference& difference : diff_configs(of_run, of_checkpoint)) {
    if (difference.resumable || difference.sizes_state) continue;
    fail(ErrorKind::checkpoint,
         "{}: is a checkpoint of another run: {} is {} there and {} in {}; take it out of this run, or begin a new "
         "run with its weights (init.from)",
         checkpoint.string(), difference.key, difference.after.empty() ? "absent" : difference.after,
         difference.before.empty() ? "absent" : difference.before, run_config.string());
  }
}

void warn_of_cut_metrics(const std::filesystem::path& metrics, int64_t step, int64_t logged) {
  const int64_t last = last_logged_step(metrics, step);
  if (last >= logged) return;
  log_warn(fmt::format(
      "{}: ends at step {}, but step {} had been logged when the checkpoint of step {} was written: lines are missing",
      metrics.string(), last, logged, step));
}

}  // namespace quire
