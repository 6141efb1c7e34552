// quire plan --scaling: what the model of trainers/plan/scaling.h says of a configuration.
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
  // Data sheets of a DGX H100: NVLink has 900 GB/s, half of it in each direction; every GPU has an InfiniBand port of
  // 400 Gb/s. The latencies are those that NCCL assumes for its rings (src/graph/tuning.cc, protocol Simple).
  std::string within_host = "450GB/s,3.4us";
  std::string between_hosts = "400Gb/s,14us";
  std::string control_latency = "50us";
  std::string exchange;
  // Whether the option was given.
  bool has_step_ms = false;
  bool has_backward_share = false;
};

// The flag --scaling and the options that need it. `probe` measures what --step-ms gives.
void add_scaling_options(Verb& verb, ScalingArguments& arguments, Option* probe);
// Which options were given. Error(config) for values that do not go together.
void check_scaling(const Verb& verb, ScalingArguments& arguments, bool probe);

// Rows of a rank, and how long its step takes: `fixed_ms` of the time does not depend on rows.
struct MeasuredStep {
  int64_t rows = 1;
  double step_ms = 0;
  double fixed_ms = 0;
};

// N ranks beside 1, 8, 64 and 512.
struct ScalingTable {
  Cluster cluster;
  ComputeTime compute;
  MeasuredStep step;
  int64_t rows = 0;  // of strong scaling
  std::vector<ScalingPoint> strong;
  std::vector<ScalingPoint> weak;
};
ScalingTable scaling_table(const RunConfig& config, const ScalingArguments& arguments, int64_t ranks,
                           const MeasuredStep& step);

void print_scaling(const ScalingTable& table);
nlohmann::ordered_json to_json(const ScalingTable& table);

}  // namespace quire
