// A run as quire report shows it. The run may go on meanwhile: its files are read, and nothing is locked or written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainers/compare/compared_run.h"
#include "trainers/plan/whole_plan.h"
#include "trainers/report/curves.h"

namespace quire {

// The places of points on the axes that a reader may choose.
struct ReportedAxes {
  std::vector<double> step;
  std::vector<double> tokens;   // targets trained on
  std::vector<double> seconds;  // of training steps
};

struct ReportedCurve {
  std::string name;
  ReducedCurve curve;
};
struct ReportedCurves {
  ReportedAxes at;  // of all curves
  std::vector<ReportedCurve> curves;
};

// Evaluations of a split while training.
struct ReportedEvaluations {
  std::string split;
  ReportedAxes at;
  std::vector<double> bits_per_byte;  // NaN where an evaluation has none, as in the next two
  std::vector<double> nats_per_token;
  std::vector<double> recall;  // share of recalled tokens that were the most likely one
};

// The time of an operation in a step, as quire bench has measured it.
struct ReportedOperation {
  std::string name;
  double ms = 0;
};

struct ReportedRun {
  std::string path;   // as given
  std::string label;  // the name of its folder, or the path where another run has the same
  RunConfig config;
  // The next four are those of the last logged step; NaN before the first.
  double step = 0;
  double tokens = 0;
  double seconds = 0;
  double loss = 0;
  std::string written;  // local time of the last line of its metrics
  ReportedCurves fields;
  ReportedCurves telemetry;
  std::vector<ReportedEvaluations> evaluations;
  std::optional<Plan> plan;                   // of one process
  std::vector<ReportedOperation> operations;  // the slowest first; none without a profile
  std::optional<ComparedRun> compared;        // with a stored evaluation only
  std::vector<std::string> notes;             // what is missing, and how to get it
};

struct ReportRequest {
  std::vector<std::string> runs;  // run directories, each given once
  std::string split;
  WhichEvaluation which = WhichEvaluation::latest;
};

struct ReportedRuns {
  std::vector<ReportedRun> runs;      // in the order of the request, without those that are damaged
  std::vector<std::string> failures;  // what is damaged in each of the others, with the path of the file
};

// Leaves out runs with damaged metrics or evaluations. Throws Error(config) for a path that is no run directory.
ReportedRuns read_runs(const ReportRequest& request);

// The file of a run directory with the output of quire bench --profile --json.
std::filesystem::path profile_file(const std::filesystem::path& run_directory);

}  // namespace quire
