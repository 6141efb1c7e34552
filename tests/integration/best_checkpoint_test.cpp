// Tests which checkpoints of a run stay: the newest, milestones, and the one with the lowest loss.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/on_ranks.h"
#include "tests/support/tiny_run.h"
#include "trainers/run/run_evaluations.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A learning rate at which the loss goes up and down.
const std::vector<std::string> kOptions{"schedule.steps=12",      "schedule.kind=constant", "schedule.warmup=1",
                                        "optimizer.lr=30",        "evaluate.every=1",       "evaluate.at_start=true",
                                        "checkpoint.every=4",     "checkpoint.keep=1",      "checkpoint.best=true",
                                        "checkpoint.milestones=5"};

std::vector<std::string> with(std::vector<std::string> options, const std::vector<std::string>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// Returns the first step with the lowest loss in metrics.jsonl.
int64_t best_step(const fs::path& run) {
  int64_t best = -1;
  double lowest = 0;
  for (const Json& line : read_metrics(run / "metrics.jsonl")) {
    if (!line.contains("evaluation")) continue;
    const double nll = line["evaluation"]["nll"];
    if (best < 0 || nll < lowest) best = line["step"], lowest = nll;
  }
  return best;
}

// Expects that the link and the stored evaluation name this step, and that its checkpoint is whole.
void expect_best(const fs::path& run, int64_t step) {
  EXPECT_EQ(linked_best_step(run / "checkpoints"), step);
  EXPECT_EQ(read_run_evaluation(run, "valid", WhichEvaluation::best)->trained.step, step);
  EXPECT_NO_THROW(CheckpointReader::open(run / "checkpoints" / kBestCheckpoint));
}

TEST(BestCheckpoint, StaysBesideTheNewestAndMilestones) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", kOptions).code, 0);
  const fs::path run = tiny / "run";
  const int64_t best = best_step(run);
  ASSERT_LT(best, 12);  // else nothing is tested
  const std::set<int64_t> expected{5, 10, 12, best};
  const std::vector<int64_t> steps = checkpoint_steps(run / "checkpoints");
  EXPECT_EQ(std::set<int64_t>(steps.begin(), steps.end()), expected);
  expect_best(run, best);
  // Every verb takes the link.
  const std::string link = (run / "checkpoints/best").string();
  const ProgramResult evaluated = run_quire({"eval", link, "--json"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_EQ(Json::parse(evaluated.out)["step"], best);
  EXPECT_EQ(Json::parse(run_quire({"inspect", link, "--json"}).out)["step"], best);
  EXPECT_EQ(Json::parse(run_quire({"inspect", run.string(), "--json"}).out)["best"], best);
  EXPECT_EQ(run_quire({"generate", link, "--length", "3"}).code, 0);
  const ProgramResult begun = tiny.train("begun", {"init.from=" + link, "schedule.steps=2"});
  EXPECT_EQ(begun.code, 0) << begun.err;
  EXPECT_NE(begun.err.find(tiny.checkpoint("run", best).string()), std::string::npos) << begun.err;
  // Ranks agree on the best one.
  ASSERT_EQ(on_ranks(2, tiny.train_arguments("ranks", kOptions)).code, 0);
  expect_best(tiny / "ranks", best_step(tiny / "ranks"));
  const Json on_two = Json::parse(on_ranks(2, {"eval", (tiny / "ranks/checkpoints/best").string(), "--json"}).out);
  EXPECT_EQ(on_two["step"], best_step(tiny / "ranks"));
}

// The initial weights may be the best ones; the run goes on from them as from any checkpoint.
TEST(BestCheckpoint, MayBeThatBeforeTheFirstStep) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", with(kOptions, {"optimizer.lr=3"})).code, 0);
  ASSERT_EQ(best_step(tiny / "run"), 0);
  expect_best(tiny / "run", 0);
  const std::vector<Json> whole = comparable_metrics(tiny / "run");
  const ProgramResult resumed = run_quire(tiny.resume_arguments(tiny / "run/checkpoints/best"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(comparable_metrics(tiny / "run"), whole);
  expect_best(tiny / "run", 0);
}

TEST(BestCheckpoint, AResumedRunKnowsIt) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("whole", kOptions).code, 0);
  const fs::path run = tiny / "parts";
  ASSERT_EQ(tiny.train("parts", with(kOptions, {"schedule.steps=1"})).code, 0);
  for (const char* steps : {"3", "4", "7", "12"}) {
    const ProgramResult resumed = tiny.resume("parts", {std::string("schedule.steps=") + steps});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    expect_best(run, best_step(run));
  }
  EXPECT_EQ(checkpoint_steps(run / "checkpoints"), checkpoint_steps(tiny / "whole/checkpoints"));
  EXPECT_EQ(best_step(run), best_step(tiny / "whole"));
}

// A checkpoint that was written, and a kill before the evaluation was recorded: it is evaluated again.
TEST(BestCheckpoint, AKillBehindTheCheckpointLosesNothing) {
  const TinyRun tiny;
  const std::vector<std::string> options{"schedule.steps=4", "evaluate.every=2", "checkpoint.every=0",
                                         "checkpoint.keep=1", "checkpoint.best=true"};
  ASSERT_EQ(tiny.train("run", options).code, 0);
  const fs::path run = tiny / "run";
  ASSERT_EQ(best_step(run), 4);
  std::string kept;
  for (const Json& line : read_metrics(run / "metrics.jsonl")) {
    if (!(line["step"] == 4 && line.contains("evaluation"))) kept += line.dump() + "\n";
  }
  write_text(run / "metrics.jsonl", kept);
  for (const char* file : {"valid.best.json", "valid.latest.json"}) fs::remove(run / "evaluations" / file);
  fs::remove(run / "checkpoints/best");
  ASSERT_EQ(tiny.resume("run").code, 0);
  expect_best(run, 4);
}

TEST(BestCheckpoint, IsRefusedWhereThereIsNone) {
  const TinyRun tiny;
  const ProgramResult refused = tiny.train("run", {"checkpoint.best=true", "evaluate.every=0"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("so no checkpoint is the best one"), std::string::npos) << refused.err;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2", "evaluate.every=2"}).code, 0);
  const ProgramResult none = run_quire({"eval", (tiny / "run/checkpoints/best").string()});
  EXPECT_EQ(none.code, 4);
  EXPECT_NE(none.err.find("the run keeps no best checkpoint; it does with checkpoint.best=true"), std::string::npos)
      << none.err;
}

// An evaluation of other documents by quire eval is the latest, and no measure of what is best.
TEST(BestCheckpoint, AnotherReadingDoesNotReplaceIt) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", with(kOptions, {"evaluate.tokens=40"})).code, 0);
  const int64_t best = best_step(tiny / "run");
  ASSERT_LT(best, 12);
  ASSERT_EQ(run_quire({"eval", (tiny / "run").string()}).code, 0);
  expect_best(tiny / "run", best);
}

}  // namespace
}  // namespace quire::test
