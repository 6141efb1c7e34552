// Tests that the record of a run says what was used: changes on --resume are named, and arguments that change nothing
// are refused.
#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

void replace_in(const fs::path& path, const std::string& what, const std::string& with) {
  std::string text = read_text(path);
  const size_t at = text.find(what);
  ASSERT_NE(at, std::string::npos) << what << " in " << text;
  write_text(path, text.replace(at, what.size(), with));
}

// Everything in a run directory but its locks, as one text.
std::string content(const fs::path& run) {
  std::map<fs::path, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    if (entry.is_regular_file() && entry.path().filename() != ".lock") files[entry.path()] = read_text(entry.path());
  }
  std::string all;
  for (const auto& [path, text] : files) all.append(path.string()).append(text);
  return all;
}

TEST(RunRecord, AFinishedRunIsLeftAlone) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  const std::string before = content(tiny / "run");
  const ProgramResult again = tiny.resume("run");
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.err.find("all 20 steps are done; schedule.steps=N, N above 20, goes on"), std::string::npos)
      << again.err;
  const auto refused =
      "all 20 steps are done, so there is no step that optimizer.lr 0.01 -> 0.001 could apply to; go on "
      "with schedule.steps=N, N above 20";
  EXPECT_FAULT(tiny.resume("run", {"optimizer.lr=1e-3"}), 2, refused);
  EXPECT_FAULT(run_quire(tiny.resume_arguments(tiny / "run", {"--drop-state"})), 2, "no step that --drop-state could");
  EXPECT_EQ(content(tiny / "run"), before);
  // The value that it has anyway is no change.
  EXPECT_EQ(tiny.resume("run", {"optimizer.lr=1e-2"}).code, 0);
  replace_in(tiny / "run/config.yaml", "lr: 0.01", "lr: 0.001");
  EXPECT_FAULT(tiny.resume("run"), 2, refused);
}

TEST(RunRecord, ChangesAreNamedInTheLog) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.warmup=2"}).code, 0);
  const ProgramResult longer = tiny.resume("run", {"schedule.steps=24", "optimizer.lr=2e-2", "log.every=2"});
  ASSERT_EQ(longer.code, 0) << longer.err;
  const std::string log = read_text(tiny / "run/log.txt");
  for (const char* line :
       {"optimizer.lr 0.01 -> 0.02 from step 20", "schedule.steps 20 -> 24 from step 20",
        "log.every 1 -> 2 from step 20", "the learning rate jumps from 0.001 at step 20 to 0.002813 at step 21"}) {
    EXPECT_NE(log.find(line), std::string::npos) << line << " in " << log;
  }
  EXPECT_EQ(read_metrics(tiny / "run/metrics.jsonl").back().at("step"), 24);
  // Without a change nothing is logged, and a constant rate does not jump.
  const TinyRun flat;
  ASSERT_EQ(flat.train("run", {"schedule.kind=constant"}).code, 0);
  const ProgramResult on = flat.resume("run", {"schedule.steps=22"});
  EXPECT_NE(on.err.find("schedule.steps 20 -> 22"), std::string::npos) << on.err;
  EXPECT_EQ(on.err.find("jumps"), std::string::npos) << on.err;
}

TEST(RunRecord, EditsOfTheRunsConfigurationCount) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.kind=constant"}).code, 0);
  const fs::path config = tiny / "run/config.yaml";
  replace_in(config, "lr: 0.01", "lr: 0.002");
  replace_in(config, "steps: 20", "steps: 22");
  const ProgramResult resumed = tiny.resume("run");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("optimizer.lr 0.01 -> 0.002 from step 20"), std::string::npos) << resumed.err;
  EXPECT_EQ(read_metrics(tiny / "run/metrics.jsonl").back().at("lr"), 0.002);
  EXPECT_NE(read_text(config).find("lr: 0.002"), std::string::npos);
  // A key that must not change is refused by its name, and the file stays as it was.
  replace_in(config, "\n  width: 16", "\n  width: 32");
  const std::string edited = read_text(config);
  EXPECT_FAULT(tiny.resume("run", {"schedule.steps=24"}), 2,
               "config.yaml: was edited: model.width is 32 there and 16 in ");
  EXPECT_EQ(read_text(config), edited);
}

// A change that no checkpoint has seen yet, because the run was killed before, is not forgotten.
TEST(RunRecord, AChangeOutlivesAKillBeforeTheNextCheckpoint) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=10", "schedule.kind=constant"}).code, 0);
  ASSERT_EQ(tiny.resume("run", {"schedule.steps=20", "optimizer.lr=1e-3"}).code, 0);
  fs::remove_all(tiny.checkpoint("run", 20));
  const ProgramResult resumed = tiny.resume("run");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("optimizer.lr 0.01 -> 0.001 from step 10"), std::string::npos) << resumed.err;
  EXPECT_EQ(read_metrics(tiny / "run/metrics.jsonl").back().at("lr"), 1e-3);
}

// configs/launch/quire.sbatch restarts a run in this way.
TEST(RunRecord, AFileMayBeGivenAgain) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.kind=constant"}).code, 0);
  const auto resume = [&](std::vector<std::string> overrides) {
    std::vector<std::string> arguments{"train", tiny.config().string(), "--resume", (tiny / "run").string(),
                                       "schedule.kind=constant"};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return run_quire(arguments);
  };
  EXPECT_NE(resume({}).err.find("all 20 steps are done"), std::string::npos);
  replace_in(tiny.config(), "lr: 1e-2", "lr: 3e-3");
  const ProgramResult resumed = resume({"schedule.steps=22"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("optimizer.lr 0.01 -> 0.003 from step 20"), std::string::npos) << resumed.err;
  replace_in(tiny / "run/config.yaml", "lr: 0.003", "lr: 0.004");
  const ProgramResult both = resume({"schedule.steps=23"});
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_NE(both.err.find("optimizer.lr was edited to 0.004 in "), std::string::npos) << both.err;
  EXPECT_EQ(read_metrics(tiny / "run/metrics.jsonl").back().at("lr"), 0.003);
  replace_in(tiny.config(), "width: 16", "width: 32");
  EXPECT_FAULT(resume({"schedule.steps=24"}), 2, "cannot change on --resume: model.width (was 16, now 32)");
}

TEST(RunRecord, AnOptionTakesOneValueAndNoEmptyOne) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  const std::string run = (tiny / "run").string();
  const ProgramResult shown = run_quire({"eval", run, "--documents", "--json"});
  const std::string document = nlohmann::json::parse(shown.out).at("by_document").at(0).at("name");
  const ProgramResult one = run_quire({"eval", run, "--document", document, "evaluate.rows=1", "--json"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(nlohmann::json::parse(one.out).at("rows"), 1);
  EXPECT_EQ(nlohmann::json::parse(one.out).at("documents"), 1);
  for (const char* option : {"--split", "--corpus", "--document", "--losses"}) {
    EXPECT_FAULT(run_quire({"eval", run, option, ""}), 2, std::string(option) + ": the value is empty");
  }
  EXPECT_FAULT(run_quire({"train", tiny.config().string(), "--run-dir", ""}), 2, "--run-dir: the value is empty");
  EXPECT_FAULT(run_quire({"train", "--resume", ""}), 2, "--resume: the value is empty");
  EXPECT_FAULT(run_quire({"train", ""}), 2, "CONFIG: the value is empty");
  EXPECT_FAULT(run_quire({"inspect", ""}), 2, "PATH: the value is empty");
  EXPECT_FAULT(run_quire({"prepare", "--input", "a", "b", "--output", "c.h5"}), 2, "did you mean --input b?");
  EXPECT_FALSE(fs::exists("runs"));
}

TEST(RunRecord, CheckRefusesWhatTrainRefuses) {
  const TinyRun tiny;
  const auto config = [&](const std::string& verb, const std::vector<std::string>& overrides) {
    std::vector<std::string> arguments{verb, tiny.config().string()};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return run_quire(arguments);
  };
  const ProgramResult valid = config("config", {});
  EXPECT_EQ(valid.code, 0) << valid.err;
  EXPECT_NE(valid.out.find("valid; not looked at: memory"), std::string::npos) << valid.out;
  const std::vector<std::vector<std::string>> wrong{
      {"data.corpus=none.h5"}, {"data.split=none"},  {"evaluate.every=5", "evaluate.split=none"},
      {"data.vocabulary=77"},  {"init.from=absent"}, {"data.mix=[{corpus: none.h5}]"}};
  for (const std::vector<std::string>& overrides : wrong) {
    const ProgramResult train = tiny.train("refused", overrides);
    EXPECT_NE(train.code, 0) << overrides.front();
    for (const char* verb : {"config", "plan"}) {
      if (std::string(verb) == "plan" && overrides.front() == "init.from=absent") continue;  // no part of its answer
      const ProgramResult checked = config(verb, overrides);
      EXPECT_EQ(checked.code, train.code) << verb << " " << overrides.front() << checked.out;
      EXPECT_EQ(checked.err, train.err);
    }
  }
  EXPECT_FALSE(fs::exists(tiny / "refused"));
  // A corpus that is still to come.
  const ProgramResult planned = config("plan", {"data.corpus=none.h5", "data.vocabulary=300"});
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_NE(planned.err.find("not looked at: "), std::string::npos) << planned.err;
}

TEST(RunRecord, TheStartSaysWhatTheScheduleReads) {
  const TinyRun tiny;
  // 3 rows of 16 in 4 steps, of documents of 301, 8, 91, 2, 42 and 151 targets.
  const ProgramResult run = tiny.train("run", {"schedule.steps=4"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto metrics = read_metrics(tiny / "run/metrics.jsonl").back();
  const ProgramResult plan = run_quire({"plan", tiny.config().string(), "schedule.steps=4", "--json"});
  const auto reading = nlohmann::json::parse(plan.out).at("reading");
  EXPECT_EQ(reading.at("tokens"), metrics.at("tokens"));
  EXPECT_EQ(reading.at("epochs"), metrics.at("epoch"));
  EXPECT_EQ(reading.at("split_documents"), 6);
  const std::string line =
      fmt::format("the 4 steps read {} of 595 tokens ({:.3g} %) and {} of 6 documents of split train",
                  reading.at("tokens").get<int64_t>(), 100 * reading.at("epochs").get<double>(),
                  reading.at("documents").get<int64_t>());
  EXPECT_NE(run.err.find(line), std::string::npos) << line << " in " << run.err;
  EXPECT_NE(run_quire({"plan", tiny.config().string(), "schedule.steps=4"}).out.find(line), std::string::npos);
}

TEST(RunRecord, EvaluationHasALimitOfTokensAndBothLossesInOneUnit) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"evaluate.every=20", "evaluate.tokens=40"}).code, 0);
  const auto evaluation = read_metrics(tiny / "run/metrics.jsonl").back().at("evaluation");
  EXPECT_EQ(evaluation.at("tokens"), 40);
  EXPECT_EQ(evaluation.at("bytes"), 40);
  EXPECT_EQ(evaluation.at("documents"), 1);
  EXPECT_TRUE(evaluation.at("word_perplexity").is_null());
  // The first 40 targets of the document, as an evaluation of all of it has them.
  const ProgramResult whole = run_quire({"eval", (tiny / "run").string(), "--by-position", "--bins", "40", "--json"});
  const auto bin = nlohmann::json::parse(whole.out).at("by_position").at(0);
  EXPECT_EQ(bin.at("end"), 40);
  const std::string log = read_text(tiny / "run/log.txt");
  EXPECT_NE(log.find("step 20: split valid, 1 documents: loss "), std::string::npos) << log;
  EXPECT_NE(log.find(" bits/byte), the last 20 training steps "), std::string::npos) << log;
  EXPECT_NE(log.find(" tokens/s"), std::string::npos) << log;
}

TEST(RunRecord, OverridesOfEvaluationAreNamed) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  const std::string run = (tiny / "run").string();
  EXPECT_FAULT(run_quire({"eval", run, "model.attention.softmax.carry.length=0"}), 2,
               "to carry nothing write carry={kind: none}");
  EXPECT_EQ(run_quire({"eval", run, "model.attention.softmax.carry={kind: none}"}).code, 0);
  EXPECT_FAULT(run_quire({"eval", run, "model.attention.softmax.carry.kind=none"}), 2,
               "with model.attention.softmax.carry.kind=none (command line): model.attention.softmax.carry.length: ");
  fs::rename(tiny.corpus(), tiny / "moved.h5");
  EXPECT_FAULT(run_quire({"eval", run, "--corpus", (tiny / "moved.h5").string()}), 3,
               "the corpus has no manifest, which is kept beside it: move that, too");
}

}  // namespace
}  // namespace quire::test
