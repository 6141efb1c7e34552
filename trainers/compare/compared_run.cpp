#include "trainers/compare/compared_run.h"

#include "core/check.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/run/resume_check.h"
#include "trainers/run/training_clock.h"

namespace quire {

namespace {

std::optional<double> number_at(const nlohmann::ordered_json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<CurvePoint> curve_point(const nlohmann::ordered_json& line, const std::string& split,
                                      const TrainingClock& clock) {
  const auto found = line.find("evaluation");
  if (found == line.end() || !found->is_object() || found->value("split", "") != split) return std::nullopt;
  const auto step = number_at(line, "step");
  const auto nll = number_at(*found, "nll");
  const auto tokens = number_at(*found, "tokens");
  if (!step || !nll || !tokens || *tokens <= 0) return std::nullopt;
  CurvePoint point;
  point.step = static_cast<int64_t>(*step);
  const auto time = clock.at(point.step);
  if (!time) return std::nullopt;
  point.tokens = time->tokens;
  point.seconds = time->seconds;
  point.evaluated = static_cast<int64_t>(*tokens);
  point.loss = *nll / *tokens;
  point.bits_per_byte = number_at(*found, "bits_per_byte");
  return point;
}

}  // namespace

RunConfig compared_config(const std::filesystem::path& run_directory) {
  std::error_code ignored;
  fail_for_runs_below(run_directory);
  const std::filesystem::path file = run_directory / "config.yaml";
  if (std::filesystem::exists(run_directory / "manifest.json", ignored)) {
    fail(ErrorKind::config, "{}: is a checkpoint; give the directory of its run", run_directory.string());
  }
  if (!std::filesystem::is_regular_file(file, ignored)) {
    fail(ErrorKind::config, "{}: no run here (config.yaml is missing); give the folder of a run",
         run_directory.string());
  }
  return read_run_file(file).config;
}

ComparedRun open_compared_run(const std::filesystem::path& run_directory, const std::string& split) {
  ComparedRun run;
  run.path = run_directory.string();
  run.config = compared_config(run_directory);
  const std::vector<int64_t> steps = checkpoint_steps(run_directory / "checkpoints");
  if (!steps.empty()) run.newest_checkpoint = steps.front();
  add_metrics(run, read_metric_columns(run_directory / "metrics.jsonl"), split);
  return run;
}

void add_metrics(ComparedRun& run, const MetricColumns& metrics, const std::string& split) {
  const TrainingClock clock(metrics);
  if (const auto time = clock.at(clock.last_step())) {
    run.final_tokens = time->tokens;
    run.final_seconds = time->seconds;
  }
  for (const nlohmann::ordered_json& line : metrics.evaluations) {
    if (const auto point = curve_point(line, split, clock)) run.curve.push_back(*point);
  }
}

}  // namespace quire
