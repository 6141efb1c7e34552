// Checks that the parts of a run directory belong together, before a run continues there and replaces some of them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainers/setup/config.h"

namespace quire {

// The config.yaml of a run directory.
struct RunFile {
  std::filesystem::path path;
  RunConfig config;
  bool edited = false;  // changed after quire wrote it
};
RunFile read_run_file(const std::filesystem::path& path);

// The changes of the configuration that a user asks for on --resume.
struct ResumeRequest {
  std::string file = {};                    // a configuration in place of the run's config.yaml; empty: none
  std::vector<std::string> overrides = {};  // key.path=value
  bool drop_state = false;
};

// Returns the configuration that a run continues with: that of `file`, else of the run, with the overrides.
RunConfig requested_config(const RunFile& run, const ResumeRequest& request);
// The same, for a checkpoint of a run with configuration `before`. Throws Error(config) when keys change that must not;
// a contradiction that comes of such a change is not what the error names.
RunConfig resumed_config(const RunConfig& before, const RunFile& run, const ResumeRequest& request, bool drop_state);

// Returns lines for the log: each key that `after` changes, "optimizer.lr 0.001 -> 0.0001 from step 600", and the
// learning rate where it jumps at the next step.
std::vector<std::string> describe_changes(const RunConfig& before, const RunConfig& after, int64_t step);
// Returns lines that name each key which was edited in config.yaml and has another value in the file of the request.
std::vector<std::string> lost_edits(const RunConfig& before, const RunFile& run, const RunConfig& after,
                                    const ResumeRequest& request);

// Returns the step of a checkpoint that a run must have written, given the last step in its metrics: one whose next
// step was logged, or the run's last. Returns nothing when it may have been killed before it wrote any.
std::optional<int64_t> step_of_written_checkpoint(const RunConfig& config, int64_t last_logged);

// Throws Error(checkpoint) when the metrics go beyond the step of a checkpoint, but there is no checkpoint.
void require_no_lost_checkpoint(const std::filesystem::path& run_directory, const RunConfig& config);

// Compares the configurations of run and checkpoint. When they differ in keys that must not change on --resume, throws
// Error(config) if the run's was edited, else Error(checkpoint).
void require_checkpoint_of_run(const std::filesystem::path& checkpoint, const RunConfig& of_checkpoint,
                               const RunFile& run);

// Throws Error(config) when a run is to end before the step of the checkpoint that it continues from.
void require_steps_left(const RunConfig& config, int64_t step);

// Returns true when a run has made all of its steps and evaluated every split after the last one, if it evaluates.
bool is_finished(const RunConfig& config, int64_t step, const std::filesystem::path& metrics);
// Returns those of the splits of which metrics.jsonl has no evaluation after the step.
std::vector<std::string> not_evaluated(const std::filesystem::path& metrics, int64_t step,
                                       const std::vector<std::string>& splits);
// Throws Error(config) that names the requested changes when a run of `steps` steps has no step left for them. If an
// evaluation of the last step is still due, changes for evaluation are allowed.
void require_no_changes(const std::vector<ConfigDifference>& differences, const ResumeRequest& request,
                        const std::filesystem::path& run_directory, int64_t steps, bool evaluated);

// Warns when the metrics end before the last step that had been logged when the checkpoint was written.
void warn_of_cut_metrics(const std::filesystem::path& metrics, int64_t step, int64_t logged);

}  // namespace quire
