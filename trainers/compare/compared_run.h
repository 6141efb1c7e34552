// A run as quire compare reads it: its configuration, an evaluation that it stored, and its evaluations while training.
// It comes from a run directory or from a file of kept runs (kept_runs.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainers/run/metric_columns.h"
#include "trainers/run/run_evaluations.h"
#include "trainers/setup/config.h"

namespace quire {

// An evaluation while training, of all or some of the documents of the split.
struct CurvePoint {
  int64_t step = 0;
  double tokens = 0;      // targets trained on by then; NaN, like seconds, in runs that were kept without
  double seconds = 0;     // of training steps by then
  int64_t evaluated = 0;  // targets that it has read
  double loss = 0;        // nats per target
  std::optional<double> bits_per_byte;
  std::optional<double> recall_accuracy = {};  // share of recalled targets that were predicted right
};

struct ComparedRun {
  std::string path;          // as given; of a kept run FILE/NAME
  std::string variant = {};  // name of its variant in a sweep; empty elsewhere
  RunConfig config;
  std::vector<RunConfig> origins;  // of the run whose weights it began with, of that one's, and so on
  StoredEvaluation evaluation;
  bool evaluated_now = false;     // it was not stored, so compare has evaluated
  int64_t newest_checkpoint = 0;  // step of it; 0 without any
  // Targets that its logged steps have read, and seconds that they took; nothing without metrics.
  std::optional<double> final_tokens;
  std::optional<double> final_seconds;
  std::vector<CurvePoint> curve;  // of the split

  int64_t seed() const { return config.run.seed; }
};

// Returns the configuration of a run directory. Throws Error(config) when the path is something else.
RunConfig compared_config(const std::filesystem::path& run_directory);

// Returns the configurations of the runs with the same seed that init.from leads to, as far as they are still there.
std::vector<RunConfig> origins_of(const RunConfig& config);

// Returns the run without its evaluation: the caller reads or makes that. Throws Error(config) for a path that is no
// run directory, Error(data) for damaged metrics.
ComparedRun open_compared_run(const std::filesystem::path& run_directory, const std::string& split);

// Gives the run its evaluations while training, and what its logged steps have read and taken.
void add_metrics(ComparedRun& run, const MetricColumns& metrics, const std::string& split);

}  // namespace quire
