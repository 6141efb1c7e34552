#include "tests/support/rank_runs.h"

#include "trainers/run/metrics.h"

namespace quire::test {

void train_until(const RankRun& run, int ranks, int64_t step) {
  const bool begins = !std::filesystem::exists(run.folder);
  run_in_process(
      ranks,
      [&](Ranks& mine) {
        const std::unique_ptr<Trainer> trainer =
            begins ? Trainer::start(run.config, run.folder, mine) : Trainer::resume(run.folder, {}, false, mine);
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
    if (line.contains("evaluation")) metrics.evaluations[step] = line.at("evaluation").at("nll").get<double>();
  }
  return metrics;
}

}  // namespace quire::test
