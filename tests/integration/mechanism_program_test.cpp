// Tests mechanisms through the program: configuration, plan, training with a kill and a resume, evaluation, generation,
// needles, and their fields in metrics.jsonl.
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

struct ProgramCase {
  std::string name;
  std::vector<std::string> settings;
  std::string telemetry;               // the end of a name that a logged step has
  std::vector<std::string> described;  // the description of the mechanism in eval --json, as JSON pointers
};
void PrintTo(const ProgramCase& value, std::ostream* out) {
  *out << value.name;
}

class MechanismProgram : public ::testing::TestWithParam<ProgramCase> {
 protected:
  std::vector<std::string> settings(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), GetParam().settings.begin(), GetParam().settings.end());
    return more;
  }
  static ProgramOptions options() {
    ProgramOptions options;
    options.program = "quire_with_mechanisms";
    return options;
  }
  static ProgramResult run(std::vector<std::string> arguments) { return run_quire(std::move(arguments), options()); }
  static nlohmann::json json_of(const ProgramResult& result) {
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
  const TinyRun tiny_;
};

TEST_P(MechanismProgram, IsCheckedAndPlanned) {
  std::vector<std::string> check{"config", tiny_.config().string(), "--check"};
  std::vector<std::string> plan{"plan", tiny_.config().string(), "--json"};
  for (const std::string& setting : settings()) {
    check.push_back(setting);
    plan.push_back(setting);
  }
  const ProgramResult checked = run(check);
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_GT(json_of(run(plan)).at("bytes").at("state").get<int64_t>(), 0);
}

// Killed at step 13 with checkpoints every 4 steps: documents are in their middle, rows at different places.
TEST_P(MechanismProgram, KilledAndResumedItTrainsTheSame) {
  for (const char* pack : {"data.pack=pad", "data.pack=concat"}) {
    const std::string whole = std::string("whole-") + pack;
    const std::string killed = std::string("killed-") + pack;
    const std::vector<std::string> all = settings({pack, "schedule.steps=20", "checkpoint.every=4"});
    const ProgramResult trained = run(tiny_.train_arguments(whole, all));
    ASSERT_EQ(trained.code, 0) << trained.err;
    std::filesystem::copy(tiny_ / whole, tiny_ / killed, std::filesystem::copy_options::recursive);
    // A kill after step 13 leaves lines of later steps than the last checkpoint.
    for (const int64_t step : {16, 20}) std::filesystem::remove_all(tiny_.checkpoint(killed, step));
    const ProgramResult resumed = run(tiny_.resume_arguments(tiny_ / killed));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(comparable_metrics(tiny_ / whole), comparable_metrics(tiny_ / killed));
    expect_same_checkpoint(tiny_.checkpoint(whole, 20), tiny_.checkpoint(killed, 20));
  }
}

// Rows are in the middle of documents, of which they know nothing any more.
TEST_P(MechanismProgram, GoesOnWithoutItsState) {
  ASSERT_EQ(run(tiny_.train_arguments("run", settings({"schedule.steps=7"}))).code, 0);
  std::vector<std::string> resume = tiny_.resume_arguments(tiny_ / "run");
  resume.insert(resume.end(), {"--drop-state", "schedule.steps=20"});
  const ProgramResult resumed = run(resume);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

TEST_P(MechanismProgram, SurvivesARealKill) {
  const std::vector<std::string> all = settings({"schedule.steps=60", "checkpoint.every=5"});
  ASSERT_EQ(run(tiny_.train_arguments("whole", all)).code, 0);
  {
    RunningProgram program(tiny_.train_arguments("killed", all), options());
    while (checkpoint_steps(tiny_ / "killed/checkpoints").empty() && program.running()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    program.send(SIGKILL);
    program.wait();
  }
  const ProgramResult resumed = run(tiny_.resume_arguments(tiny_ / "killed"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(comparable_metrics(tiny_ / "whole"), comparable_metrics(tiny_ / "killed"));
  expect_same_checkpoint(tiny_.checkpoint("whole", 60), tiny_.checkpoint("killed", 60));
}

TEST_P(MechanismProgram, ReadsTheSameWithAnyNumberOfRows) {
  ASSERT_EQ(run(tiny_.train_arguments("run", settings())).code, 0);
  const auto evaluate = [&](const std::string& rows) {
    return json_of(run({"eval", (tiny_ / "run").string(), "--json", "--documents", "evaluate.rows=" + rows}));
  };
  const nlohmann::json one = evaluate("1");
  for (const char* rows : {"3", "8"}) {
    const nlohmann::json many = evaluate(rows);
    EXPECT_EQ(many.at("nll"), one.at("nll")) << rows;
    EXPECT_EQ(many.at("context_mean"), one.at("context_mean"));
  }
  for (const std::string& described : GetParam().described) {
    EXPECT_TRUE(one.contains(nlohmann::json::json_pointer(described))) << described << " in " << one.dump();
  }
  bool told = false;
  for (const nlohmann::ordered_json& line : read_metrics(tiny_ / "run/metrics.jsonl")) {
    for (const auto& [name, value] : line.at("telemetry").items()) {
      told = told || (name.ends_with(GetParam().telemetry) && value.is_number());
    }
  }
  EXPECT_TRUE(told) << GetParam().telemetry;
}

TEST_P(MechanismProgram, GeneratesAndFindsNeedles) {
  ASSERT_EQ(run(tiny_.train_arguments("run", settings())).code, 0);
  const std::vector<std::string> generate{
      "generate", (tiny_ / "run").string(), "--prompt", "abcdefghijklmnopqrst", "--length", "40", "--json"};
  const nlohmann::json text = json_of(run(generate));
  EXPECT_EQ(text.at("tokens"), 40);
  EXPECT_EQ(json_of(run(generate)).at("text"), text.at("text"));
  const ProgramResult needle =
      run({"needle", (tiny_ / "run").string(), "--lengths", "256", "--samples", "2", "--json"});
  EXPECT_EQ(json_of(needle).at("cells").size(), 5U) << needle.out;
}

std::vector<ProgramCase> cases() {
  const std::string vq = "{window: 6, block: 4, codes: 5, value_size: 6, codebook: {reseed: 0.5}}";
  const std::string knn = "model.memory=[{kind: knn, layers: [-1], carry: {length: 24}, top_k: 4}]";
  return {
      {"vq",
       {"model.attention={kind: vq, vq: " + vq + "}", "model.heads=1", "model.mlp.kind=none"},
       "codebook.perplexity",
       {"/attention/compressive_cache", "/attention/block"}},
      {"knn", {knn}, "memory.0.gate.1", {"/memory/0/carry.length", "/memory/0/top_k", "/attention/carry.length"}},
      {"mixture",
       {knn, "model.layer_overrides=[{layers: [0], attention: {kind: vq, vq: " + vq + "}}]"},
       "memory.0.share",
       {"/memory/0/stale.keep"}},
      {"landmark",
       {"model.position.kind=rope",
        "model.attention={kind: landmark, landmark: {block: 5, top_k: 2, carry: {length: 20, in_training: true, dtype: "
        "int8}}}"},
       "attention.back.1",
       {"/attention/carry.length", "/attention/top_k"}},
      {"landmark_over_moba",
       {"model.position.kind=rope",
        "model.attention={kind: moba, moba: {block: 8, top_k: 2, carry: {length: 9, dtype: fp8}}}",
        "model.layer_overrides=[{layers: [1], attention: {kind: landmark, landmark: {block: 6, top_k: 1, "
        "carry: {length: 3, place: file, dtype: bf16}, in_loss: true}}}]"},
       "attention.stored",
       {"/attention/carry.length"}},
      {"moba",
       {"model.position.kind=rope",
        "model.attention={kind: moba, moba: {block: 4, top_k: 3, carry: {length: 30, dtype: int8}}}"},
       "attention.different",
       {"/attention/carry.length", "/attention/max_distance"}},
      {"hils",
       {"model.position.kind=rope",
        "model.attention={kind: hils, hils: {chunk: 4, window: 6, top_k: 2, carry: {length: 30, dtype: int8}}}"},
       "attention.chunks",
       {"/attention/carry.length", "/attention/top_k", "/attention/window"}},
      {"infini",
       {"model.position.kind=rope", "model.attention={kind: infini, infini: {block: 6, update: delta}}"},
       "attention.share",
       {"/attention/block", "/attention/window"}},
      {"delta",
       {"model.position.kind=none", "model.attention={kind: delta, delta: {gates: channel}}"},
       "attention.slow",
       {}},
      {"block_recurrent",
       {"model.position.kind=t5", "model.attention={kind: block_recurrent, block_recurrent: {window: 6, states: 4}}"},
       "attention.moved",
       {"/attention/window"}},
      {"feedback",
       {"model.position.kind=alibi",
        "model.attention={kind: block_recurrent, block_recurrent: {window: 4, states: 4, feedback: 0}}"},
       "attention.moved",
       {"/attention/window"}},
      {"drt",
       {"model.position.kind=alibi", "model.attention={softmax: {window: 9, carry: {kind: kv, length: none}}}",
        "model.layers=3",
        "model.stack={kind: drt, drt: {chunk: 3, top_k: 2, lower_layers: 1, encoder_layers: 1, carry: {length: 40, "
        "dtype: fp8}}}"},
       "stack.groups.1.new",
       {"/stack/carry.length", "/stack/top_k"}},
      {"drt_bm25",
       {"model.position.kind=alibi", "model.attention={softmax: {window: 9, carry: {kind: kv, length: none}}}",
        "model.stack={kind: drt, drt: {chunk: 3, top_k: 2, groups: 1, encoder_layers: 1, scores: bm25, weights: "
        "scores, "
        "carry: {length: 40}}}"},
       "stack.groups.0.largest",
       {"/stack/carry.length", "/stack/top_k"}},
      {"fast_weight",
       {"model.memory=[{kind: fast_weight, layers: [0, 1], chunk: 4, rate: 0.5}]"},
       "memory.0.power",
       {"/memory/0/kind"}},
      {"two_halves",
       {"model.stack={kind: two_halves, two_halves: {chunk: 3, length: 40}}", "model.layers=4"},
       "chunks.distance",
       {"/stack/length"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, MechanismProgram, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quire::test
