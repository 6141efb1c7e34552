#include "trainers/cli/sweep_comparison.h"

#include <algorithm>

#include "core/check.h"
#include "core/log.h"
#include "trainers/cli/trained_model.h"
#include "trainers/compare/kept_runs.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

const SweepVariant& variant_of(const Sweep& sweep, const SweepRun& run) {
  return *std::find_if(sweep.config.variants.begin(), sweep.config.variants.end(),
                       [&](const SweepVariant& variant) { return variant.name == run.variant; });
}

// Returns nothing where there is no run of the baseline.
std::optional<ComparePlan> plan_of(const Sweep& sweep, const std::vector<ComparedRun>& runs) {
  const auto first_of = [&](const std::string& variant) {
    return static_cast<size_t>(
        std::find_if(runs.begin(), runs.end(), [&](const ComparedRun& run) { return run.variant == variant; }) -
        runs.begin());
  };
  ComparePlan plan;
  plan.baseline = first_of(sweep.config.baseline_variant().name);
  if (plan.baseline == runs.size()) {
    log_warn("nothing is compared: there is no run of the baseline");
    return std::nullopt;
  }
  plan.split = runs[plan.baseline].config.evaluate.split.first();
  for (const SweepVariant& variant : sweep.config.variants) {
    if (!variant.beside) continue;
    const std::pair beside{first_of(variant.name), first_of(*variant.beside)};
    if (std::max(beside.first, beside.second) < runs.size()) plan.choices.besides.push_back(beside);
  }
  for (const std::string& metric : sweep.config.metrics) {
    plan.choices.metrics.push_back(parse_metric(metric, "metrics"));
  }
  return plan;
}

// Returns the configurations of the runs whose weights it begins with, of the nearest first.
std::vector<RunConfig> origins_in(const Sweep& sweep, const SweepRun& run) {
  std::vector<RunConfig> origins;
  for (fs::path origin = run.origin; !origin.empty();) {
    const auto found = std::find_if(sweep.runs.begin(), sweep.runs.end(),
                                    [&](const SweepRun& other) { return other.folder == origin; });
    origins.push_back(configuration_of(found->config, found->overrides));
    origin = found->origin;
  }
  return origins;
}

}  // namespace

void compare_trained(const Sweep& sweep, const std::vector<fs::path>& failed, const CompareOutput& output) {
  std::vector<ComparedRun> runs;
  for (size_t i = 0; i < sweep.runs.size(); ++i) {
    const SweepRun& run = sweep.runs[i];
    if (!variant_of(sweep, run).compared || std::find(failed.begin(), failed.end(), run.folder) != failed.end())
      continue;
    runs.push_back(wholly_evaluated_run(run.folder.string(), sweep.configs[i].evaluate.split.first()));
    runs.back().variant = run.variant;
  }
  if (const auto plan = plan_of(sweep, runs)) print_comparison(std::move(runs), *plan, output);
}

void compare_kept(const Sweep& sweep, const std::string& kept_file, const std::string& sweep_file,
                  const CompareOutput& output) {
  std::vector<ComparedRun> kept = read_kept_runs(kept_file);
  std::vector<ComparedRun> runs;
  size_t missing = 0;
  for (const SweepRun& run : sweep.runs) {
    if (!variant_of(sweep, run).compared) continue;
    const auto found = std::find_if(kept.begin(), kept.end(), [&](const ComparedRun& one) {
      return one.variant == run.variant && one.seed() == run.seed;
    });
    if (found == kept.end()) {
      ++missing;
      continue;
    }
    require_same_results(*found, configuration_of(run.config, run.overrides), origins_in(sweep, run));
    runs.push_back(std::move(*found));
    kept.erase(found);
  }
  if (!kept.empty()) {
    fail(ErrorKind::config, "{}: is no run of {}, or stands there twice", kept.front().path, sweep_file);
  }
  if (missing > 0) log_info(fmt::format("{} runs of the sweep are not in {}", missing, kept_file));
  if (const auto plan = plan_of(sweep, runs)) print_comparison(std::move(runs), *plan, output);
}

}  // namespace quire
