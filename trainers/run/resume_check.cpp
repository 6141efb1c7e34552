#include "trainers/run/resume_check.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "trainers/run/metrics.h"
#include "trainers/setup/previous_form.h"

namespace quire {

namespace {

std::string shown(const std::string& value) {
  return value.empty() ? "absent" : value;
}

// Describes the learning rate of the step after `step` when it is not the one that `before` would give; empty
// otherwise.
std::string describe_jump(const RunConfig& before, const RunConfig& after, int64_t step) {
  if (step == 0 || before.optimizer.relative_step || after.optimizer.relative_step) return "";
  const double last = learning_rate(before.schedule, before.optimizer.lr, step);
  const double expected = learning_rate(before.schedule, before.optimizer.lr, step + 1);
  const double next = learning_rate(after.schedule, after.optimizer.lr, step + 1);
  constexpr double kJump = 0.01;
  if (std::abs(next - expected) <= kJump * std::max(next, expected)) return "";
  return fmt::format("the learning rate jumps from {:.4g} at step {} to {:.4g} at step {}", last, step, next, step + 1);
}

// Returns the configuration that a request gives, whose parts may contradict each other.
RunConfig unchecked_config(const RunFile& run, const ResumeRequest& request) {
  bool saved = false;
  std::string written;
  ConfigNode root;
  if (request.file.empty()) {
    root = overridden_tree(dump_config(run.config), request.overrides, "command line");
    written = root.location.file;
  } else {
    root = load_yaml(request.file, &saved);
    if (saved) written = request.file;
    for (const std::string& text : request.overrides) apply_override(root, text);
  }
  RunConfig config;
  read_config(StructRef<RunConfig>(config), root, "", ReadMode::keys, written);
  return config;
}

}  // namespace

RunFile read_run_file(const std::filesystem::path& path) {
  constexpr int64_t kLongest = int64_t{16} << 20;
  const std::string text = read_text_file(path, {.kind = ErrorKind::config, .max_bytes = kLongest});
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  return {path, read_written_config(text, path.string(), folder.string()), was_edited(text)};
}

RunConfig requested_config(const RunFile& run, const ResumeRequest& request) {
  if (request.file.empty()) return with_overrides(run.config, request.overrides);
  return load_config<RunConfig>(request.file, request.overrides);
}

RunConfig resumed_config(const RunConfig& before, const RunFile& run, const ResumeRequest& request, bool drop_state) {
  const auto require_changes = [&](const RunConfig& after) {
    require_resumable(diff_configs(before, after), drop_state);
  };
  RunConfig config;
  try {
    config = requested_config(run, request);
  } catch (const Error&) {
    // A contradiction may come of a change that is not possible at all.
    require_changes(unchecked_config(run, request));
    throw;
  }
  require_changes(config);
  return config;
}

std::vector<std::string> describe_changes(const RunConfig& before, const RunConfig& after, int64_t step) {
  std::vector<std::string> lines;
  for (const ConfigDifference& difference : diff_configs(before, after)) {
    lines.push_back(fmt::format("{} {} -> {} from step {}", difference.key, shown(difference.before),
                                shown(difference.after), step));
  }
  if (lines.empty()) return lines;
  if (std::string jump = describe_jump(before, after, step); !jump.empty()) lines.push_back(std::move(jump));
  return lines;
}

std::vector<std::string> lost_edits(const RunConfig& before, const RunFile& run, const RunConfig& after,
                                    const ResumeRequest& request) {
  std::vector<std::string> lines;
  if (!run.edited || request.file.empty()) return lines;
  const std::vector<ConfigDifference> kept = diff_configs(before, after);
  for (const ConfigDifference& edit : diff_configs(before, run.config)) {
    const bool stays = std::any_of(kept.begin(), kept.end(), [&](const ConfigDifference& change) {
      return change.key == edit.key && change.after == edit.after;
    });
    if (stays) continue;
    lines.push_back(fmt::format("{} was edited to {} in {}, but {} and the overrides count", edit.key,
                                shown(edit.after), run.path.string(), request.file));
  }
  return lines;
}

std::optional<int64_t> step_of_written_checkpoint(const RunConfig& config, int64_t last_logged) {
  for (int64_t step : {config.checkpoint.every, config.checkpoint.milestones}) {
    if (step > 0 && last_logged > step) return step;
  }
  // The last step's line is written just before the last checkpoint.
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
                               const RunFile& run) {
  for (const ConfigDifference& difference : diff_configs(run.config, of_checkpoint)) {
    if (difference.resumable || difference.sizes_state) continue;
    const std::string in_run = shown(difference.before);
    const std::string in_checkpoint = shown(difference.after);
    if (run.edited) {
      fail(ErrorKind::config,
           "{}: was edited: {} is {} there and {} in {}, and cannot change on --resume; write {} again, or begin a new "
           "run with this file and another --run-dir",
           run.path.string(), difference.key, in_run, in_checkpoint, checkpoint.string(), in_checkpoint);
    }
    fail(ErrorKind::checkpoint,
         "{}: is a checkpoint of another run: {} is {} there and {} in {}; take it out of this run, or begin a new "
         "run with its weights (init.from)",
         checkpoint.string(), difference.key, in_checkpoint, in_run, run.path.string());
  }
}

std::vector<std::string> not_evaluated(const std::filesystem::path& metrics, int64_t step,
                                       const std::vector<std::string>& splits) {
  std::vector<std::string> missing = splits;
  for (const nlohmann::ordered_json& line : read_metrics(metrics)) {
    const auto evaluation = line.find("evaluation");
    if (evaluation == line.end() || !evaluation->is_object() || line.value("step", int64_t{0}) != step) continue;
    std::erase(missing, evaluation->value("split", ""));
  }
  return missing;
}

bool is_finished(const RunConfig& config, int64_t step, const std::filesystem::path& metrics) {
  return step >= config.schedule.steps &&
         (config.evaluate.every == 0 || not_evaluated(metrics, step, config.evaluate.split.names).empty());
}

void require_no_changes(const std::vector<ConfigDifference>& differences, const ResumeRequest& request,
                        const std::filesystem::path& run_directory, int64_t steps, bool evaluated) {
  const auto is_of_use = [&](const std::string& key) {
    return !evaluated && (key.starts_with("evaluate.") || key.starts_with("run.") || key.starts_with("data."));
  };
  std::vector<std::string> changes;
  for (const ConfigDifference& difference : differences) {
    if (is_of_use(difference.key)) continue;
    changes.push_back(fmt::format("{} {} -> {}", difference.key, shown(difference.before), shown(difference.after)));
  }
  if (request.drop_state) changes.emplace_back("--drop-state");
  if (changes.empty()) return;
  fail(ErrorKind::config,
       "{}: all {} steps are done, so there is no step that {} could apply to; go on with schedule.steps=N, N above {}",
       run_directory.string(), steps, fmt::join(changes, ", "), steps);
}

void warn_of_cut_metrics(const std::filesystem::path& metrics, int64_t step, int64_t logged) {
  const int64_t last = last_logged_step(metrics, step);
  if (last >= logged) return;
  log_warn(fmt::format(
      "{}: ends at step {}, but step {} had been logged when the checkpoint of step {} was written: lines are missing",
      metrics.string(), last, logged, step));
}

}  // namespace quire
