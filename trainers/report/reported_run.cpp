#include "trainers/report/reported_run.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <set>

#include "core/check.h"
#include "core/cores.h"
#include "core/files/file_io.h"
#include "core/json.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/plan/plan.h"
#include "trainers/run/training_clock.h"

namespace quire {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Curves of several runs share a page of some megabytes, and none needs more points than a chart has pixels.
constexpr size_t kMaxBuckets = 500;
constexpr size_t kMaxTelemetryBuckets = 300;
constexpr size_t kMinBuckets = 40;
constexpr size_t kPageBuckets = 60000;  // of all fields, and as many of all telemetry

size_t buckets_for(size_t runs, size_t curves, size_t max_buckets) {
  return std::clamp(kPageBuckets / std::max<size_t>(1, runs * curves), kMinBuckets, max_buckets);
}

ReportedCurves reduced(const MetricColumns& metrics, const std::vector<MetricColumn>& columns, size_t count,
                       const TrainingClock& clock) {
  const Buckets buckets = buckets_of(metrics.steps.size(), count);
  ReportedCurves curves;
  curves.at.step = last_values(metrics.steps, buckets);
  for (const double step : curves.at.step) {
    const auto time = clock.at(static_cast<int64_t>(step));
    curves.at.tokens.push_back(time ? time->tokens : kNoNumber);
    curves.at.seconds.push_back(time ? time->seconds : kNoNumber);
  }
  for (const MetricColumn& column : columns)
    curves.curves.push_back({column.name, reduced_curve(column.values, buckets)});
  return curves;
}

double number_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : kNoNumber;
}

void add_evaluation(ReportedRun& run, const Json& line, const TrainingClock& clock) {
  const Json& evaluation = line.at("evaluation");
  const double step = number_at(line, "step");
  if (!evaluation.is_object() || std::isnan(step)) return;
  const auto name = evaluation.find("split");
  const std::string split = name != evaluation.end() && name->is_string() ? name->get<std::string>() : "";
  auto found = std::find_if(run.evaluations.begin(), run.evaluations.end(),
                            [&](const ReportedEvaluations& one) { return one.split == split; });
  if (found == run.evaluations.end()) found = run.evaluations.insert(found, ReportedEvaluations{split, {}, {}, {}, {}});
  const auto time = clock.at(static_cast<int64_t>(step));
  found->at.step.push_back(step);
  found->at.tokens.push_back(time ? time->tokens : kNoNumber);
  found->at.seconds.push_back(time ? time->seconds : kNoNumber);
  found->bits_per_byte.push_back(number_at(evaluation, "bits_per_byte"));
  found->nats_per_token.push_back(number_at(evaluation, "nll") / number_at(evaluation, "tokens"));
  const auto recall = evaluation.find("recall");
  found->recall.push_back(recall != evaluation.end() && recall->is_object() ? number_at(*recall, "accuracy")
                                                                            : kNoNumber);
}

std::string local_time_of(const fs::path& file) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  if (error) return "";
  const auto since = std::chrono::file_clock::to_sys(written).time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count();
  std::tm time{};
  std::array<char, 32> text{};
  if (::localtime_r(&seconds, &time) == nullptr) return "";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &time)};
}

void add_metrics_of(ReportedRun& run, size_t runs) {
  const fs::path file = fs::path(run.path) / "metrics.jsonl";
  const MetricColumns metrics = read_metric_columns(file);
  const TrainingClock clock(metrics);
  run.fields = reduced(metrics, metrics.fields, buckets_for(runs, metrics.fields.size(), kMaxBuckets), clock);
  run.telemetry =
      reduced(metrics, metrics.telemetry, buckets_for(runs, metrics.telemetry.size(), kMaxTelemetryBuckets), clock);
  for (const Json& line : metrics.evaluations) add_evaluation(run, line, clock);
  run.step = run.tokens = run.seconds = run.loss = kNoNumber;
  if (metrics.steps.empty()) {
    run.notes.push_back(fmt::format("{}: no step has been logged yet, so it has no curves", run.label));
    return;
  }
  const auto time = clock.at(clock.last_step());
  run.written = local_time_of(file);
  run.step = metrics.steps.back();
  if (time) run.tokens = time->tokens;
  if (time) run.seconds = time->seconds;
  if (const std::vector<double>* loss = metrics.field("loss")) run.loss = loss->back();
  if (run.compared) add_metrics(*run.compared, metrics, run.compared->evaluation.split);
}

void add_stored_evaluation(ReportedRun& run, const ReportRequest& request) {
  std::optional<StoredEvaluation> stored = read_run_evaluation(run.path, request.split, request.which);
  if (!stored) {
    run.notes.push_back(
        fmt::format("{}: no evaluation of split {} is stored, so the figures leave it out; quire eval {} stores one",
                    run.label, request.split, run.path));
    return;
  }
  ComparedRun& compared = run.compared.emplace();
  compared.path = run.path;
  compared.config = run.config;
  compared.origins = origins_of(run.config);
  compared.evaluation = std::move(*stored);
  const std::vector<int64_t> steps = checkpoint_steps(fs::path(run.path) / "checkpoints");
  if (!steps.empty()) compared.newest_checkpoint = steps.front();
}

// Reads RUN/profile.json. A file that is something else is no reason to have no page.
void add_profile(ReportedRun& run) {
  const fs::path file = profile_file(run.path);
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return;
  try {
    const auto profile = parse_json<Json>(read_text_file(file, {.kind = ErrorKind::data}));
    const auto steps = static_cast<double>(json_integer(profile.at("steps"), 1));
    for (const Json& operation : profile.at("operations")) {
      run.operations.push_back({operation.at("name").get<std::string>(), operation.at("ms").get<double>() / steps});
    }
  } catch (const std::exception&) {
    run.operations.clear();
    run.notes.push_back(fmt::format("{}: {} is not what quire bench --profile --json prints, and is left out",
                                    run.label, file.string()));
  }
}

// Plans of runs that differ in seed and name alone are the same.
class Plans {
 public:
  void add_to(ReportedRun& run) {
    RunConfig config = run.config;
    config.run.seed = 1;
    config.run.name = "run";
    const auto [found, is_new] = plans_.emplace(dump_config(config), Made{});
    if (is_new) found->second = make(run.config);
    run.plan = found->second.plan;
    if (!found->second.note.empty()) run.notes.push_back(run.label + found->second.note);
  }

 private:
  struct Made {
    std::optional<Plan> plan;
    std::string note;
  };

  static Made make(const RunConfig& config) {
    Made made;
    std::error_code ignored;
    try {
      made.plan = make_plan(config, 1, allowed_cores());
      if (!config.data.vocabulary && !fs::exists(config.data.corpus, ignored)) {
        made.note = fmt::format(": {} is not here, so its memory is computed for {} token ids, those of bytes",
                                config.data.corpus, made.plan->vocabulary);
      }
    } catch (const Error& error) {
      made.note = fmt::format(": its memory cannot be computed here: {}", error.what());
    }
    return made;
  }

  std::map<std::string, Made> plans_;
};

std::string folder_name(const std::string& path) {
  std::error_code ignored;
  fs::path whole = fs::absolute(path, ignored).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return whole.filename().string();
}

void label_runs(std::vector<ReportedRun>& runs) {
  std::multiset<std::string> names;
  for (const ReportedRun& run : runs) names.insert(folder_name(run.path));
  for (ReportedRun& run : runs) {
    const std::string name = folder_name(run.path);
    run.label = names.count(name) > 1 ? run.path : name;
  }
}

}  // namespace

fs::path profile_file(const fs::path& run_directory) {
  return run_directory / "profile.json";
}

ReportedRuns read_runs(const ReportRequest& request) {
  std::vector<ReportedRun> runs;
  for (const std::string& path : request.runs) {
    ReportedRun& run = runs.emplace_back();
    run.path = path;
    run.config = compared_config(path);
  }
  label_runs(runs);
  ReportedRuns read;
  Plans plans;
  for (ReportedRun& run : runs) {
    try {
      add_stored_evaluation(run, request);
      add_metrics_of(run, runs.size());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      read.failures.emplace_back(error.what());
      continue;
    }
    add_profile(run);
    plans.add_to(run);
    read.runs.push_back(std::move(run));
  }
  return read;
}

}  // namespace quire
