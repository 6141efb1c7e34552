// Whether the parts of a run directory belong together, before a run goes on there and replaces some of them.
#pragma once

#include <filesystem>
#include <optional>

#include "trainers/run/config.h"

namespace quire {

// The step of a checkpoint that a run must have written, given the last step in its metrics: one whose next step was
// logged, or the run's last. Nothing when it may have been killed before it wrote any.
std::optional<int64_t> step_of_written_checkpoint(const RunConfig& config, int64_t last_logged);

// Error(checkpoint) for a run whose metrics are of steps behind a checkpoint, when there is no checkpoint.
void require_no_lost_checkpoint(const std::filesystem::path& run_directory, const RunConfig& config);

// Error(checkpoint) when the configurations of run and checkpoint differ in more than what may change on --resume.
void require_checkpoint_of_run(const std::filesystem::path& checkpoint, const RunConfig& of_checkpoint,
                               const std::filesystem::path& run_config, const RunConfig& of_run);

// Error(config) when a run is to end before the step of the checkpoint that it goes on from.
void require_steps_left(const RunConfig& config, int64_t step);

// Warns when the metrics end before the last step that had been logged when the checkpoint was written.
void warn_of_cut_metrics(const std::filesystem::path& metrics, int64_t step, int64_t logged);

}  // namespace quire
