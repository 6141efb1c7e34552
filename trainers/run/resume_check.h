// Whether the parts of a run directory belong together, before a run goes on there and replaces some of them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainers/setup/config.h"

namespace quire {

// config.yaml of a run directory.
struct RunFile {
  std::filesystem::path path;
  RunConfig config;
  bool edited = false;  // by somebody else than quire
};
RunFile read_run_file(const std::filesystem::path& path);

// What a user says about the configuration on --resume.
struct ResumeRequest {
  std::string file = {};                    // a configuration in place of config.yaml of the run; empty: none
  std::vector<std::string> overrides = {};  // key.path=value
  bool drop_state = false;
};

// The configuration that a run goes on with: that of `file`, else of the run, with the overrides.
RunConfig requested_config(const RunFile& run, const ResumeRequest& request);

// Lines for the log: each key that `after` changes, "optimizer.lr 0.001 -> 0.0001 from step 600", and the learning rate
// where it jumps at the next step.
std::vector<std::string> describe_changes(const RunConfig& before, const RunConfig& after, int64_t step);
// Lines that name each key which was edited in config.yaml and has another value in the file of the request.
std::vector<std::string> lost_edits(const RunConfig& before, const RunFile& run, const RunConfig& after,
                                    const ResumeRequest& request);

// The step of a checkpoint that a run must have written, given the last step in its metrics: one whose next step was
// logged, or the run's last. Nothing when it may have been killed before it wrote any.
std::optional<int64_t> step_of_written_checkpoint(const RunConfig& config, int64_t last_logged);

// Error(checkpoint) for a run whose metrics are of steps behind a checkpoint, when there is no checkpoint.
void require_no_lost_checkpoint(const std::filesystem::path& run_directory, const RunConfig& config);

// When the configurations of run and checkpoint differ in more than what may change on --resume: Error(config) where
// the run's was edited, else Error(checkpoint).
void require_checkpoint_of_run(const std::filesystem::path& checkpoint, const RunConfig& of_checkpoint,
                               const RunFile& run);

// Error(config) when a run is to end before the step of the checkpoint that it goes on from.
void require_steps_left(const RunConfig& config, int64_t step);

// True when a run has made all of its steps and evaluated the last one, where it evaluates.
bool is_finished(const RunConfig& config, int64_t step, const std::filesystem::path& metrics);
// Whether metrics.jsonl has an evaluation of the step.
bool was_evaluated(const std::filesystem::path& metrics, int64_t step);
// Error(config) that names changes for which a run of `steps` steps has none left. An evaluation of the last step that
// is still due may have others.
void require_no_changes(const std::vector<ConfigDifference>& differences, const ResumeRequest& request,
                        const std::filesystem::path& run_directory, int64_t steps, bool evaluated);

// Warns when the metrics end before the last step that had been logged when the checkpoint was written.
void warn_of_cut_metrics(const std::filesystem::path& metrics, int64_t step, int64_t logged);

}  // namespace quire
