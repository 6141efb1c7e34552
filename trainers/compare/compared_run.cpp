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
  const auto recall = found->find("recall");
  if (recall != found->end() && recall->is_object()) point.recall_accuracy = number_at(*recall, "accuracy");
  return point;
}

// Returns the configuration of the run that init.from names, or nothing where it is not there any more.
std::optional<RunConfig> origin_of(const RunConfig& config) {
  if (!config.init.from) return std::nullopt;
  const std::filesystem::path given = *config.init.from;
  for (const std::filesystem::path& folder : {given, given.parent_path().parent_path()}) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(folder / "config.yaml", ignored)) continue;
    if (std::filesystem::exists(folder / "manifest.json", ignored)) continue;  // a checkpoint, in the folder of its run
    try {
      return read_run_file(folder / "config.yaml").config;
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<RunConfig> origins_of(const RunConfig& config) {
  constexpr size_t kDeepest = 8;
  std::vector<RunConfig> origins;
  for (const RunConfig* of = &config; origins.size() < kDeepest; of = &origins.back()) {
    std::optional<RunConfig> origin = origin_of(*of);
    if (!origin || origin->run.seed != config.run.seed) break;
    origins.push_back(std::move(*origin));
  }
  return origins;
}

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
  run.origins = origins_of(run.config);
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
