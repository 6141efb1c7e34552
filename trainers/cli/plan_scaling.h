// quire plan --scaling: prints the predictions of trainers/plan/scaling.h for a configuration.
#pragma once

#include <nlohmann/json.hpp>

#include "trainers/cli/verb.h"
#include "trainers/plan/scaling.h"

namespace quire {

struct ScalingArguments {
  bool asked = false;
  double step_ms = 0;
  double fixed_ms = 0;
  double backward_share = 0;
  int64_t ranks_per_host = 8;
  // Defaults from the data sheets of a DGX H100: NVLink has 900 GB/s, half of it in each direction; every GPU has an
  // InfiniBand port of 400 Gb/s. The latencies are those that NCCL assumes for its rings (src/graph/tuning.cc, protocol
  // Simple).
  std::string within_host = "450GB/s,3.4us";
  std::string between_hosts = "400Gb/s,14us";
  std::string control_latency = "50us";
  std::string exchange;
  // True when the option was given.
  bool has_step_ms = false;
  bool has_backward_share = false;
};

// Adds the flag --scaling and the options that need it. `probe` is the option that measures the value of --step-ms.
void add_scaling_options(Verb& verb, ScalingArguments& arguments, Option* probe);
// Records which options were given. Throws Error(config) for values that contradict each other.
void check_scaling(const Verb& verb, ScalingArguments& arguments, bool probe);

// The rows of a rank and its step time, of which `fixed_ms` does not depend on rows.
struct MeasuredStep {
  int64_t rows = 1;
  double step_ms = 0;
  double fixed_ms = 0;
};

// Predictions for N ranks and for 1, 8, 64 and 512.
struct ScalingTable {
  Cluster cluster;
  ComputeTime compute;
  MeasuredStep step;
  int64_t rows = 0;  // rows for strong scaling
  std::vector<ScalingPoint> strong;
  std::vector<ScalingPoint> weak;
};
ScalingTable scaling_table(const RunConfig& config, const ScalingArguments& arguments, int64_t ranks,
                           const MeasuredStep& step);

void print_scaling(const ScalingTable& table);
nlohmann::ordered_json to_json(const ScalingTable& table);

}  // namespace quire
