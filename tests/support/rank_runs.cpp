#include "tests/support/rank_runs.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "tests/support/mpirun.h"
#include "trainers/run/metrics.h"

namespace quire::test {

namespace {

// The last rank gets the signal when all ask each other.
void train_under_mpirun(const RankRun& run, int ranks, int64_t step, bool begins) {
  const std::string config = run.folder.string() + ".yaml";
  if (begins) std::ofstream(config) << dump_config(run.config);
  const std::vector<std::string> arguments =
      begins ? std::vector<std::string>{"train", config, "--run-dir", run.folder.string()}
             : std::vector<std::string>{"train", "--resume", run.folder.string()};
  MpirunOptions options;
  options.misbehaves =
      std::to_string(ranks - 1) + ":" + std::to_string(step) + ":asking whether to stop:" + std::to_string(SIGUSR1);
  const ProgramResult result = under_mpirun(ranks, arguments, options);
  // After the last step a run is finished, or stopped, depending on what is left to do.
  ASSERT_TRUE(result.code == kExitStopped || (result.code == 0 && step == run.config.schedule.steps)) << result.err;
}

}  // namespace

void train_until(const RankRun& run, int ranks, int64_t step) {
  const bool begins = !std::filesystem::exists(run.folder);
  if (std::getenv("QUIRE_TEST_MPIRUN") != nullptr && ranks > 1) return train_under_mpirun(run, ranks, step, begins);
  run_in_process(
      ranks,
      [&](Ranks& mine) {
        const std::unique_ptr<Trainer> trainer =
            begins ? Trainer::start(run.config, run.folder, mine) : Trainer::resume(run.folder, {}, mine);
        const bool asks = mine.rank() == ranks - 1;
        trainer->run(
            [&]() -> std::string { return asks && trainer->training().step >= step ? "the test asks to stop" : ""; });
      },
      run.options);
}

RankRunMetrics metrics_of(const std::filesystem::path& folder) {
  RankRunMetrics metrics;
  for (const nlohmann::ordered_json& line : read_metrics(folder / "metrics.jsonl")) {
    const auto step = line.at("step").get<int64_t>();
    if (line.contains("loss")) metrics.losses[step] = line.at("loss").get<double>();
    if (line.contains("telemetry")) {
      for (const auto& [name, value] : line.at("telemetry").items()) metrics.telemetry[step].insert(name);
    }
    if (line.contains("evaluation")) metrics.evaluations[step] = line.at("evaluation").at("nll").get<double>();
  }
  return metrics;
}

}  // namespace quire::test
