// Compares runs that were stopped and resumed with runs that never stopped.
#include "tests/support/tiny_run.h"
#include "tests/support/training_run.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

TEST(Resume, TwoRunsWithOneSeedLogTheSame) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("a", {"evaluate.every=7"}).code, 0);
  ASSERT_EQ(tiny.train("b", {"evaluate.every=7", "run.threads=2"}).code, 0);
  EXPECT_EQ(comparable_metrics(tiny / "a").size(), 23U);  // evaluated at 7, 14 and the end
  EXPECT_EQ(comparable_metrics(tiny / "a"), comparable_metrics(tiny / "b"));
  expect_same_checkpoint(tiny.checkpoint("a", 20), tiny.checkpoint("b", 20));
  // 589 bytes in 6 documents are 595 targets.
  const auto last = comparable_metrics(tiny / "a").at(20);
  EXPECT_DOUBLE_EQ(last["epoch"].get<double>(), last["tokens"].get<double>() / 595);
}

// The run is resumed as if the process had ended right after the checkpoint of step 10: later lines are still in the
// files.
TEST(Resume, TwentyStepsAreTenAndTen) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"evaluate.every=10"},
        {"data.pack=concat", "model.attention.softmax.carry.kind=kv"},
        {"data.sampling=columns"},
        {"data.sampling=windows"},
        {"model.dropout.residual=0.2", "data.accumulate=2", "model.position.kind=t5"}}) {
    const TinyRun tiny;
    ASSERT_EQ(tiny.train("whole", options).code, 0);
    fs::copy(tiny / "whole", tiny / "half", fs::copy_options::recursive);
    fs::remove_all(tiny.checkpoint("half", 20));
    const ProgramResult resumed = tiny.resume("half");
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / "half")) << options.front();
    expect_same_checkpoint(tiny.checkpoint("whole", 20), tiny.checkpoint("half", 20));
  }
}

TEST(Resume, AwkwardMomentsToo) {
  // Documents of 301, 8, 91, 2, 42 and 151 positions: beginnings, middles and ends of documents and an epoch's end.
  const TinyRun tiny;
  ASSERT_EQ(
      tiny.train("whole", {"checkpoint.every=1", "checkpoint.keep=100", "schedule.steps=16", "evaluate.every=0"}).code,
      0);
  for (const int64_t step : {1, 2, 13}) {
    const std::string name = "from" + std::to_string(step);
    fs::copy(tiny / "whole", tiny / name, fs::copy_options::recursive);
    // The path ends with the slash that a shell appends.
    const ProgramResult resumed = run_quire(tiny.resume_arguments(tiny.checkpoint(name, step).string() + "/"));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / name)) << step;
    expect_same_checkpoint(tiny.checkpoint("whole", 16), tiny.checkpoint(name, 16));
  }
}

TEST(Resume, LongerRunsAndOtherResumableKeys) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.kind=constant", "schedule.steps=10"}).code, 0);
  fs::rename(tiny.corpus(), tiny / "moved.h5");
  fs::rename(tiny / "corpus.h5.manifest", tiny / "moved.h5.manifest");
  const ProgramResult resumed = tiny.resume(
      "run", {"schedule.steps=16", "log.every=3", "optimizer.lr=1e-3", "data.corpus=" + (tiny / "moved.h5").string()});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  std::vector<int64_t> steps;
  for (const auto& line : comparable_metrics(tiny / "run")) steps.push_back(line["step"]);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16}));
  EXPECT_EQ(comparable_metrics(tiny / "run").back()["lr"], 1e-3);
  EXPECT_NE(read_text(tiny / "run/config.yaml").find("steps: 16"), std::string::npos);
}

TEST(Resume, OtherKeysAreRefusedAndNothingChanges) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=10"}).code, 0);
  const std::string metrics = read_text(tiny / "run/metrics.jsonl");
  const std::string config = read_text(tiny / "run/config.yaml");
  for (const char* text : {"model.width=32", "data.rows=4", "run.seed=4", "data.subsequence=8"}) {
    const ProgramResult refused = tiny.resume("run", {text, "schedule.steps=20"});
    EXPECT_EQ(refused.code, 2) << text;
    ASSERT_EQ(refused.errors().size(), 1U) << refused.err;
    EXPECT_NE(refused.err.find("cannot change on --resume"), std::string::npos) << refused.err;
  }
  EXPECT_EQ(read_text(tiny / "run/metrics.jsonl"), metrics);
  EXPECT_EQ(read_text(tiny / "run/config.yaml"), config);
}

// Retention counts the newest: left alone, the steps that were given up would push out every new checkpoint.
TEST(Resume, GoingBackLeavesTheLaterCheckpointsBehind) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"checkpoint.every=5"}).code, 0);
  ASSERT_EQ(checkpoint_steps(tiny / "run/checkpoints"), (std::vector<int64_t>{20, 15, 10}));
  const ProgramResult resumed = run_quire(tiny.resume_arguments(
      tiny.checkpoint("run", 10), {"checkpoint.every=2", "checkpoint.keep=2", "schedule.steps=14"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("going back to step 10"), std::string::npos) << resumed.err;
  EXPECT_EQ(checkpoint_steps(tiny / "run/checkpoints"), (std::vector<int64_t>{14, 12}));
  EXPECT_EQ(comparable_metrics(tiny / "run").back()["step"], 14);
}

TEST(Resume, AFinishedRunHasNothingLeftToDo) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  const auto before = comparable_metrics(tiny / "run");
  EXPECT_EQ(tiny.resume("run").code, 0);
  EXPECT_EQ(comparable_metrics(tiny / "run"), before);
}

// Carried state would not fit: other sizes need --drop-state, and the message says so.
TEST(Resume, SizesOfStateChangeWithDropState) {
  const TinyRun tiny;
  const std::string memory = "model.memory=[{kind: knn, layers: [0], carry: {length: 20}, top_k: 4}]";
  ASSERT_EQ(tiny.train("run", {"schedule.steps=10", "schedule.kind=constant", memory}).code, 0);
  const std::vector<std::string> changes{"model.memory.0.carry.length=30", "model.attention.softmax.carry.length=9"};
  for (const std::string& change : changes) {
    const ProgramResult refused = tiny.resume("run", {change, "schedule.steps=12"});
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_NE(refused.err.find("--drop-state allows it"), std::string::npos) << refused.err;
  }
  const std::vector<std::string> begin{"train", "--resume", (tiny / "run").string(), "--drop-state"};
  const auto drop_state = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> arguments = begin;
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return run_quire(arguments);
  };
  const ProgramResult refused = drop_state({changes[0], "model.width=32"});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_NE(refused.err.find("model.width (was 16, now 32); start a new run"), std::string::npos) << refused.err;
  const ProgramResult resumed = drop_state({changes[0], changes[1], "schedule.steps=12"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(comparable_metrics(tiny / "run").back()["step"], 12);
  EXPECT_NE(read_text(tiny / "run/config.yaml").find("length: 30"), std::string::npos);
  // After that the run continues like any other.
  EXPECT_EQ(tiny.resume("run", {"schedule.steps=14"}).code, 0);
}

TEST(Resume, DropStateBeginsWithEmptyCaches) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=10", "schedule.kind=constant"}).code, 0);
  const auto next_loss = [&](const std::string& name, const std::vector<std::string>& flags) {
    fs::copy(tiny / "run", tiny / name, fs::copy_options::recursive);
    std::vector<std::string> arguments = tiny.resume_arguments(tiny / name, flags);
    arguments.push_back("schedule.steps=11");
    const ProgramResult resumed = run_quire(arguments);
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    return read_metrics(tiny / name / "metrics.jsonl").back().at("loss").get<double>();
  };
  const double dropped = next_loss("dropped", {"--drop-state"});
  EXPECT_NE(dropped, next_loss("kept", {}));

  const std::unique_ptr<Corpus> corpus = Corpus::open(tiny.corpus());
  const RunConfig config =
      load_config<RunConfig>(tiny.config().string(), {"schedule.steps=11", "schedule.kind=constant"});
  TrainingRun run(config, *corpus, tiny.checkpoint("run", 10), true);
  const RunSnapshot without = run.snapshot();
  const RunSnapshot fresh = TrainingRun(config, *corpus).snapshot();
  int64_t states = 0;
  for (const auto& [name, bytes] : fresh.tensors) {
    if (name.rfind("state.", 0) != 0) continue;
    EXPECT_EQ(without.tensors.at(name), bytes) << name;
    ++states;
  }
  EXPECT_GT(states, 0);
  EXPECT_DOUBLE_EQ(run.step().loss, dropped);
}

}  // namespace
}  // namespace quire::test
