// Whole training runs on ranks that are threads of this process.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/ranks/in_process.h"
#include "trainers/run/trainer.h"

namespace quire::test {

struct RankRun {
  RunConfig config;
  std::filesystem::path folder;  // the run directory
  InProcessOptions options = {};
};

// Goes on with a run, or begins it when the folder does not exist, until the last step or a step at which the last rank
// asks to stop; that saves a checkpoint.
// With QUIRE_TEST_MPIRUN in the environment they are processes under mpirun.
void train_until(const RankRun& run, int ranks, int64_t step);

// The values of every step in metrics.jsonl, the names of its telemetry, and the total loss of every evaluation by
// step.
struct RankRunMetrics {
  std::map<int64_t, double> losses;
  std::map<int64_t, double> evaluations;
  std::map<int64_t, std::set<std::string>> telemetry;  // names
};
RankRunMetrics metrics_of(const std::filesystem::path& folder);

}  // namespace quire::test
