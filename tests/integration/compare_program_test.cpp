// Tests quire compare as a program: which evaluations it reads, which it makes, and what it refuses. Its figures are
// those of compare_figures_test.py.
#include <regex>

#include "tests/faults/expect_fault.h"
#include "tests/support/small_disk.h"
#include "trainers/run/run_evaluations.h"

namespace quire::test {
namespace {

// Text without the breaks of its lines.
std::string on_one_line(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

class CompareProgram : public ::testing::Test {
 protected:
  void train(const std::string& run, std::vector<std::string> overrides) const {
    overrides.insert(overrides.end(), {"schedule.steps=4", "schedule.kind=constant"});
    const ProgramResult result = tiny_.train(run, overrides);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  // Two runs that evaluated at steps 2 and 4.
  void train_two() const {
    train("a", {"evaluate.every=2"});
    train("b", {"evaluate.every=2", "optimizer.lr=1e-3"});
  }
  std::string path(const std::string& name) const { return (tiny_ / name).string(); }
  ProgramResult compare(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"compare", path("a"), path("b")});
    return run_quire(arguments);
  }
  nlohmann::ordered_json compared(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const ProgramResult result = compare(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::ordered_json::parse(result.out);
  }
  std::filesystem::path stored(const std::string& run, WhichEvaluation which = WhichEvaluation::latest) const {
    return evaluation_file(tiny_ / run, "valid", which);
  }
  TinyRun tiny_;
};

TEST_F(CompareProgram, ReadsWhatTrainingHasStored) {
  train_two();
  const auto json = compared({"--stored"});
  for (size_t i = 0; i < 2; ++i) {
    const auto& run = json.at("runs").at(i);
    const auto last = read_metrics(tiny_ / (i == 0 ? "a" : "b") / "metrics.jsonl").back();
    EXPECT_EQ(run.at("step"), 4);
    EXPECT_EQ(run.at("nll"), last.at("evaluation").at("nll"));
    EXPECT_EQ(run.at("bits_per_byte"), last.at("evaluation").at("bits_per_byte"));
    EXPECT_FALSE(run.at("evaluated_now").get<bool>());
    EXPECT_GT(run.at("train_seconds").get<double>(), 0);
  }
  // Two documents have no interval.
  const auto& difference = json.at("differences").at(0);
  EXPECT_TRUE(difference.at("interval").is_null());
  EXPECT_EQ(difference.at("without"), "2 documents, and an interval needs 6");
  EXPECT_EQ(json.at("configuration").at(0).at("key"), "optimizer.lr");
  const ProgramResult text = compare({});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  for (const char* part : {"Final figures", "no interval: 2 documents", "optimizer.lr", "At equal time"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in " << text.out;
  }
  // The other run as the baseline turns the sign.
  const auto other = compared({"--baseline", path("b")}).at("differences").at(0);
  EXPECT_EQ(other.at("difference").get<double>(), -difference.at("difference").get<double>());
}

TEST_F(CompareProgram, EvaluatesWhereNothingIsStoredAndSaysSo) {
  train("a", {});
  train("b", {"optimizer.lr=1e-3"});
  ASSERT_EQ(run_quire({"eval", path("b")}).code, 0);
  EXPECT_FAULT(compare({"--stored"}), 2, "a: no evaluation of split valid is stored; leave out --stored");
  EXPECT_FAULT(compare({"--best"}), 2, "a: no best evaluation of split valid is stored");
  const ProgramResult first = compare({});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("a: no evaluation of split valid is stored; evaluating step-00000004"), std::string::npos)
      << first.err;
  EXPECT_EQ(first.err.find("b: no evaluation"), std::string::npos) << first.err;
  EXPECT_NE(on_one_line(first.out).find("a had stored no evaluation of split valid, so it was evaluated"),
            std::string::npos);
  // It is stored then, with the figures of quire eval.
  const auto json = compared({"--stored"});
  const auto eval = nlohmann::ordered_json::parse(run_quire({"eval", path("a"), "--json"}).out);
  EXPECT_EQ(json.at("runs").at(0).at("nll"), eval.at("nll"));
  EXPECT_EQ(json.at("equal_time").at("without"), path("a") + " has not evaluated split valid while training");
}

// Only what the run itself would evaluate is stored.
TEST_F(CompareProgram, OtherEvaluationsAreNotStored) {
  train("a", {"optimizer.ema.decay=0.9"});
  const std::vector<std::vector<std::string>> others{{"data.subsequence=8"},
                                                     {"--document", "valid/0.txt"},
                                                     {"--document", "0"},
                                                     {"--by-position", "--bins", "20"},
                                                     {"--ema"},
                                                     {"--check"}};
  for (std::vector<std::string> arguments : others) {
    arguments.insert(arguments.begin(), {"eval", path("a")});
    run_quire(arguments);
    EXPECT_FALSE(std::filesystem::exists(stored("a"))) << arguments.back();
  }
  ASSERT_EQ(run_quire({"eval", path("a"), "evaluate.rows=1", "--by-position"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(stored("a")));
  // A checkpoint that has left its run is evaluated as before.
  std::filesystem::rename(tiny_.checkpoint("a", 4), tiny_ / "step-00000004");
  EXPECT_EQ(run_quire({"eval", path("step-00000004")}).err.find("warning"), std::string::npos);
}

TEST_F(CompareProgram, AnOlderEvaluationIsWarnedOfAndGoesWithItsSteps) {
  train_two();
  const ProgramResult more = tiny_.resume("a", {"schedule.steps=6", "evaluate.every=0"});
  ASSERT_EQ(more.code, 0) << more.err;
  const ProgramResult text = compare({});
  EXPECT_NE(
      on_one_line(text.out).find("the evaluation is that of step 4, and there is a checkpoint of step 6; quire eval"),
      std::string::npos)
      << text.out;
  // A run that goes back forgets the evaluations of the steps after.
  train("c", {"evaluate.every=2", "checkpoint.every=2"});
  std::filesystem::remove_all(tiny_.checkpoint("c", 4));
  ASSERT_EQ(tiny_.resume("c", {"schedule.steps=3", "evaluate.every=0"}).code, 0);
  const auto best = read_run_evaluation(tiny_ / "c", "valid", WhichEvaluation::best);
  EXPECT_FALSE(read_run_evaluation(tiny_ / "c", "valid", WhichEvaluation::latest));
  EXPECT_TRUE(!best || best->trained.step <= 3);
}

TEST_F(CompareProgram, ResumedRunsKeepTheTimeOfTheirTraining) {
  train("a", {"evaluate.every=2"});
  const auto before = read_run_evaluation(tiny_ / "a", "valid", WhichEvaluation::latest);
  ASSERT_EQ(tiny_.resume("a", {"schedule.steps=6", "evaluate.every=6"}).code, 0);
  const auto after = read_run_evaluation(tiny_ / "a", "valid", WhichEvaluation::latest);
  EXPECT_EQ(after->trained.step, 6);
  EXPECT_GT(*after->trained.seconds, 0);
  EXPECT_GT(after->trained.tokens, before->trained.tokens);
  double seconds = 0;
  for (const auto& line : read_metrics(tiny_ / "a/metrics.jsonl")) {
    if (line.contains("step_ms")) seconds += line.at("step_ms").get<double>() / 1000;
  }
  EXPECT_NEAR(*after->trained.seconds, seconds, 0.5 * seconds);
}

TEST_F(CompareProgram, WhatIsNoRunIsRefused) {
  train_two();
  EXPECT_FAULT(run_quire({"compare"}), 2, "RUN is required");
  EXPECT_FAULT(run_quire({"compare", path("a")}), 2, "one run alone has nothing to be compared with");
  EXPECT_FAULT(run_quire({"compare", path("a"), path("a") + "/"}), 2, "is given twice");
  EXPECT_FAULT(compare({path("")}), 2, "is a folder of runs; give one of them");
  EXPECT_FAULT(compare({path("none")}), 2, "none: no run here");
  EXPECT_FAULT(compare({path("corpus.h5")}), 3, "corpus.h5: is neither the directory of a run nor");
  EXPECT_FAULT(compare({tiny_.checkpoint("a", 4).string()}), 2, "is a checkpoint; give the directory of its run");
  EXPECT_FAULT(compare({"--baseline", path("none")}), 2, "is none of the runs");
  EXPECT_FAULT(compare({"--split", "none"}), 2, "no split \"none\"; there is: train, valid");
  for (const char* option : {"--baseline", "--split", "--html"}) {
    EXPECT_FAULT(compare({option, ""}), 2, std::string(option) + ": the value is empty");
    EXPECT_FAULT(compare({option, "x", option, "y"}), 2, option);
  }
  for (const WhichEvaluation which : {WhichEvaluation::latest, WhichEvaluation::best}) {
    const std::string whole = read_text(stored("a", which));
    write_text(stored("a", which), whole.substr(0, whole.size() - 9));
    EXPECT_FAULT(compare({which == WhichEvaluation::best ? "--best" : "--stored"}), 3, "is a damaged evaluation");
    write_text(stored("a", which), "mine");
    EXPECT_FAULT(compare({which == WhichEvaluation::best ? "--best" : "--stored"}), 3, "is no evaluation that quire");
  }
  // Damaged metrics are no reason to lose an evaluation.
  write_text(tiny_ / "b/metrics.jsonl", "mine\n");
  EXPECT_EQ(run_quire({"eval", path("b")}).code, 0);
  EXPECT_FAULT(run_quire({"compare", path("b"), path("a")}), 3, "metrics.jsonl:1: not a JSON object");
  // Training and quire eval leave foreign files alone, and go on.
  const ProgramResult eval = run_quire({"eval", path("a")});
  EXPECT_EQ(eval.code, 0);
  EXPECT_NE(eval.err.find("the evaluation is not stored for quire compare"), std::string::npos) << eval.err;
  EXPECT_EQ(tiny_.resume("a", {"schedule.steps=6"}).code, 0);
  EXPECT_EQ(read_text(stored("a")), "mine");
}

TEST_F(CompareProgram, PagesReplacePagesOnly) {
  train_two();
  const ProgramResult first = compare({"--html", path("page.html")});
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string page = read_text(tiny_ / "page.html");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>")) << page;
  EXPECT_NE(page.find("optimizer.lr"), std::string::npos);
  EXPECT_EQ(compare({"--html", path("page.html")}).code, 0);
  write_text(tiny_ / "other.html", "<!DOCTYPE html>\n<title>mine</title>\n");
  std::filesystem::create_symlink(tiny_ / "page.html", tiny_ / "link.html");
  EXPECT_FAULT(compare({"--html", path("other.html")}), 2, "exists already and is not a page of quire compare");
  EXPECT_FAULT(compare({"--html", path("run.yaml")}), 2, "exists already and is not a page of quire compare");
  EXPECT_FAULT(compare({"--html", path("link.html")}), 2, "link.html: is a link");
  EXPECT_FAULT(compare({"--html", "/dev/null"}), 2, "/dev/null: is a device");
  EXPECT_FAULT(compare({"--html", "/no/such/folder/a.html"}), 7, "there is no folder /no/such/folder");
  EXPECT_EQ(read_text(tiny_ / "other.html"), "<!DOCTYPE html>\n<title>mine</title>\n");
  EXPECT_EQ(read_text(tiny_ / "page.html"), page);
}

TEST_F(CompareProgram, AFullDiskLeavesWhatWasThere) {
  const SmallDisk disk(2000);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk is not permitted here";
  train_two();
  const std::string page = (disk.path() / "page.html").string();
  ASSERT_EQ(compare({"--html", page}).code, 0);
  const std::string before = read_text(page);
  std::filesystem::copy(tiny_ / "a", disk.path() / "a", std::filesystem::copy_options::recursive);
  const auto kept = evaluation_file(disk.path() / "a", "valid", WhichEvaluation::latest);
  const std::string evaluation = read_text(kept);
  write_text(disk.path() / "filler", std::string(std::filesystem::space(disk.path()).available, 'x'));

  const ProgramResult full = compare({"--html", page});
  EXPECT_EQ(full.code, 7) << full.err;
  ASSERT_EQ(full.errors().size(), 1U) << full.err;
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  EXPECT_EQ(read_text(page), before);
  const ProgramResult eval = run_quire({"eval", (disk.path() / "a").string()});
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_NE(eval.err.find("quire: warning: the evaluation is not stored"), std::string::npos) << eval.err;
  EXPECT_EQ(read_text(kept), evaluation);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(disk.path())) {
    EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  }
}

}  // namespace
}  // namespace quire::test
