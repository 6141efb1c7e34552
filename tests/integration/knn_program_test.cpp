// Tests a kNN memory through the program: what --resume may change of it, and what a run cannot begin with.
#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

const std::string kMemory = "model.memory=[{kind: knn, layers: [0], top_k: 4, carry: {length: 50}}]";

// The number of entries that the rows held before each step.
std::vector<double> entries_of(const std::filesystem::path& run) {
  std::vector<double> entries;
  for (const nlohmann::ordered_json& line : read_metrics(run / "metrics.jsonl")) {
    if (!line.contains("telemetry")) continue;
    for (const auto& [key, value] : line["telemetry"].items()) {
      if (key.ends_with("memory.0.entries")) entries.push_back(value.get<double>());
    }
  }
  return entries;
}

// Memory stays as it is while nothing is written, and goes on from there.
TEST(KnnProgram, WritingStopsAndBeginsAgainOnResume) {
  const TinyRun tiny;
  const std::string corpus = (tiny / "long.h5").string();
  write_corpus(corpus, {{"train", texts_of_lengths({300})}, {"valid", texts_of_lengths({60})}});
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2", "data.rows=1", "data.corpus=" + corpus, kMemory}).code, 0);
  const ProgramResult stopped = tiny.resume("run", {"model.memory.0.write=never", "schedule.steps=4"});
  ASSERT_EQ(stopped.code, 0) << stopped.err;
  const ProgramResult again = tiny.resume("run", {"model.memory.0.write=produce", "schedule.steps=6"});
  ASSERT_EQ(again.code, 0) << again.err;
  const std::vector<double> entries = entries_of(tiny / "run");
  EXPECT_EQ(entries, (std::vector<double>{0, 16, 32, 32, 32, 48}));
}

TEST(KnnProgram, ARunCannotBeginWithNothingToRead) {
  const TinyRun tiny;
  const std::string never = "model.memory=[{kind: knn, layers: [0], write: never}]";
  const std::string message = "model.memory.0.write: a run that begins with never has nothing in memory";
  EXPECT_FAULT(tiny.train("run", {never}), 2, message);
  EXPECT_FALSE(std::filesystem::exists(tiny / "run"));
  EXPECT_FAULT(run_quire({"config", tiny.config().string(), "--check", "data.corpus=" + tiny.corpus().string(), never}),
               2, message);
}

// A key that cannot change is refused before what its change would contradict.
TEST(KnnProgram, AChangeThatIsNotPossibleIsRefusedFirst) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2", kMemory}).code, 0);
  EXPECT_FAULT(tiny.resume("run", {"model.memory.0.search=bucketed", "schedule.steps=3"}), 2,
               "cannot change on --resume: model.memory.0.search (was exact, now bucketed)");
  // A contradiction of what may change is named as before.
  EXPECT_FAULT(tiny.resume("run", {"model.memory.0.write=evict", "schedule.steps=3", "checkpoint.best=true"}), 2,
               "checkpoint.best: with evaluate.every: 0");
}

}  // namespace
}  // namespace quire::test
