// Tests what a run evaluates while it trains: several splits, and before the first step.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "tests/support/on_ranks.h"
#include "tests/support/tiny_run.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

using Json = nlohmann::ordered_json;

// Returns "STEP SPLIT" of every evaluation in metrics.jsonl.
std::vector<std::string> evaluations_of(const std::filesystem::path& run) {
  std::vector<std::string> list;
  for (const Json& line : read_metrics(run / "metrics.jsonl")) {
    if (!line.contains("evaluation")) continue;
    list.push_back(line["step"].dump() + " " + line["evaluation"]["split"].get<std::string>());
  }
  return list;
}

TEST(EvaluatingRun, SeveralSplitsAreEvaluatedOneByOne) {
  const TinyRun tiny;
  const std::vector<std::string> options{"schedule.steps=4", "evaluate.every=2", "evaluate.split=[valid, train]"};
  ASSERT_EQ(tiny.train("both", options).code, 0);
  const std::vector<std::string> expected{"2 valid", "2 train", "4 valid", "4 train"};
  EXPECT_EQ(evaluations_of(tiny / "both"), expected);
  for (const char* name : {"valid.latest", "valid.best", "train.latest", "train.best"}) {
    EXPECT_TRUE(std::filesystem::exists(tiny / "both/evaluations" / (std::string(name) + ".json"))) << name;
  }
  EXPECT_NE(read_text(tiny / "both/config.yaml").find("split: [valid, train]"), std::string::npos);
  // A run with one split has the same figures, and its configuration has the name alone.
  ASSERT_EQ(tiny.train("one", {"schedule.steps=4", "evaluate.every=2"}).code, 0);
  EXPECT_NE(read_text(tiny / "one/config.yaml").find("split: valid"), std::string::npos);
  std::vector<Json> both = comparable_metrics(tiny / "both");
  std::erase_if(both, [](const Json& line) { return line.value("/evaluation/split"_json_pointer, "") == "train"; });
  EXPECT_EQ(both, comparable_metrics(tiny / "one"));
  // Two ranks write the same lines.
  ASSERT_EQ(on_ranks(2, tiny.train_arguments("ranks", options)).code, 0);
  EXPECT_EQ(evaluations_of(tiny / "ranks"), expected);
}

// The split that a stop left out is made up for, and no other.
TEST(EvaluatingRun, ASplitThatIsMissingIsMadeUpFor) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=4", "evaluate.every=4", "evaluate.split=[valid, train]"}).code, 0);
  const std::vector<Json> whole = comparable_metrics(tiny / "run");
  std::string kept;
  for (const Json& line : read_metrics(tiny / "run/metrics.jsonl")) {
    if (line.value("/evaluation/split"_json_pointer, "") != "train") kept += line.dump() + "\n";
  }
  write_text(tiny / "run/metrics.jsonl", kept);
  ASSERT_EQ(tiny.resume("run").code, 0);
  EXPECT_EQ(comparable_metrics(tiny / "run"), whole);
}

TEST(EvaluatingRun, ListsOfSplitsAreChecked) {
  const auto parse = [](const std::string& value) {
    return parse_config<RunConfig>(kTinyConfig, "tiny", {"evaluate.split=" + value}).evaluate.split.names;
  };
  EXPECT_EQ(parse("test"), std::vector<std::string>{"test"});
  EXPECT_EQ(parse("[a, b]"), (std::vector<std::string>{"a", "b"}));
  EXPECT_ERROR(parse("[]"), ErrorKind::config, "evaluate.split: the list is empty; name a split");
  EXPECT_ERROR(parse("[a, b, a]"), ErrorKind::config, "evaluate.split: has split 'a' twice");
  EXPECT_ERROR(parse("[[a]]"), ErrorKind::config, "evaluate.split.0");
  const TinyRun tiny;
  const ProgramResult unknown = tiny.train("run", {"evaluate.every=2", "evaluate.split=[valid, none]"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("no split \"none\""), std::string::npos) << unknown.err;
  EXPECT_FALSE(std::filesystem::exists(tiny / "run"));
}

// Step 0 has the loss of the initial weights, and training goes on as without it.
TEST(EvaluatingRun, CanBeginBeforeTheFirstStep) {
  const TinyRun tiny;
  const std::vector<std::string> plain{"schedule.steps=4", "evaluate.every=2"};
  std::vector<std::string> options = plain;
  options.emplace_back("evaluate.at_start=true");
  ASSERT_EQ(tiny.train("plain", plain).code, 0);
  ASSERT_EQ(tiny.train("start", options).code, 0);
  EXPECT_EQ(evaluations_of(tiny / "start"), (std::vector<std::string>{"0 valid", "2 valid", "4 valid"}));
  std::vector<Json> lines = comparable_metrics(tiny / "start");
  ASSERT_EQ(lines.front()["step"], 0);
  lines.erase(lines.begin());
  EXPECT_EQ(lines, comparable_metrics(tiny / "plain"));
  // Weights that never change have the same loss before and after the last step.
  ASSERT_EQ(
      tiny.train("same", {"schedule.steps=2", "evaluate.every=2", "evaluate.at_start=true", "optimizer.lr=0"}).code, 0);
  const std::vector<Json> same = comparable_metrics(tiny / "same");
  EXPECT_EQ(same.front()["evaluation"]["nll"], same.back()["evaluation"]["nll"]);
  const ProgramResult refused = tiny.train("refused", {"evaluate.every=0", "evaluate.at_start=true"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("with evaluate.every: 0 nothing is evaluated"), std::string::npos) << refused.err;
}

// A run that ended behind its first evaluation and before its first checkpoint begins again, and evaluates once.
TEST(EvaluatingRun, TheEvaluationBeforeTheFirstStepIsMadeOnce) {
  const TinyRun tiny;
  const std::vector<std::string> options{"schedule.steps=4", "evaluate.every=2", "evaluate.at_start=true"};
  ASSERT_EQ(tiny.train("whole", options).code, 0);
  for (const size_t lines : {0U, 1U, 2U}) {
    std::filesystem::remove_all(tiny / "cut");
    std::filesystem::copy(tiny / "whole", tiny / "cut", std::filesystem::copy_options::recursive);
    std::filesystem::remove_all(tiny / "cut/checkpoints");
    std::filesystem::create_directory(tiny / "cut/checkpoints");
    const std::vector<Json> all = read_metrics(tiny / "whole/metrics.jsonl");
    std::string kept;
    for (size_t i = 0; i < lines; ++i) kept += all[i].dump() + "\n";
    write_text(tiny / "cut/metrics.jsonl", kept);
    const ProgramResult resumed = tiny.resume("cut");
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(comparable_metrics(tiny / "cut"), comparable_metrics(tiny / "whole")) << lines;
  }
}

}  // namespace
}  // namespace quire::test
