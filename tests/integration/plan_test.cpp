// Compares quire plan with what the same configuration then uses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/files/file_io.h"
#include "kernels/backend.h"
#include "kernels/cuda_scratch.h"
#include "tests/support/expect_error.h"
#include "tests/support/program.h"
#include "tests/support/small_corpus.h"
#include "tests/support/tiny_run.h"
#include "trainers/plan/plan.h"
#include "trainers/run/metrics.h"

namespace quire::test {
namespace {

constexpr const char* kConfig = R"(
run: {name: plan, threads: 2}
data: {corpus: none.h5, vocabulary: 1000, subsequence: 384, rows: 4}
model: {width: 192, layers: 6, heads: 4, mlp: {kind: swiglu, hidden: 512}, attention: {softmax: {carry: {kind: none}}}}
evaluate: {every: 0}
)";

constexpr const char* kVq = "model.attention={kind: vq, vq: {window: 64, codes: 64, block: 64}}";
constexpr const char* kKnn = "model.memory=[{kind: knn, layers: [3], carry: {length: 2048}, top_k: 16}]";
constexpr const char* kHils =
    "model.attention={kind: hils, hils: {chunk: 32, window: 128, top_k: 4, carry: {length: 200}}}";
constexpr const char* kMoba = "model.attention={kind: moba, moba: {block: 64, top_k: 4, carry: {length: 64}}}";

struct PlanCase {
  std::string name;
  std::vector<std::string> settings;
  int64_t full_after = 1;  // steps that fill what rows carry
};

class PlanAgainstRun : public ::testing::TestWithParam<PlanCase> {
 protected:
  nlohmann::json json_of(std::vector<std::string> arguments) {
    const ProgramResult result = run_quire(std::move(arguments));
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
  TemporaryDirectory folder_;
};

TEST_P(PlanAgainstRun, WithinFivePercent) {
  const std::string config = (folder_ / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  std::vector<std::string> plan_arguments{"plan", config, "--json"};
  std::vector<std::string> bench_arguments{
      "bench", config, "--json", "--steps", "1", "--warmup", fmt::format("{}", GetParam().full_after)};
  for (const std::string& setting : GetParam().settings) {
    plan_arguments.push_back(setting);
    bench_arguments.push_back(setting);
  }
  const nlohmann::json plan = json_of(plan_arguments);
  const nlohmann::json run = json_of(bench_arguments);
  EXPECT_EQ(plan["parameters"], run["parameters"]);
  const nlohmann::json& bytes = plan["bytes"];
  EXPECT_EQ(bytes["state"], run["state_bytes"]);
  EXPECT_EQ(run["system_allocations"], 0);
  const auto step = bytes["weights"].get<double>() + bytes["gradients"].get<double>() + bytes["moments"].get<double>() +
                    bytes["average"].get<double>() + bytes["state"].get<double>() + bytes["activations"].get<double>();
  EXPECT_NEAR(step / run["peak_bytes"].get<double>(), 1, 0.05);
  EXPECT_NEAR((step + bytes["free_blocks"].get<double>()) / run["held_bytes"].get<double>(), 1, 0.05);
  EXPECT_NEAR(bytes["step"].get<double>() / run["resident_bytes"].get<double>(), 1, 0.05)
      << plan.dump(1) << run.dump(1);
}

INSTANTIATE_TEST_SUITE_P(
    Plan, PlanAgainstRun,
    ::testing::Values(
        PlanCase{"rotary", {"model.position.kind=rope"}},
        PlanCase{"transformer_xl",
                 {"model.position.kind=xl", "model.attention.softmax.carry={kind: hidden, length: 384}"}},
        PlanCase{
            "keys_and_values",
            {"model.position.kind=t5", "model.attention.softmax.carry={kind: kv, length: 512}", "model.key_heads=2"},
            2},
        PlanCase{"wide_vocabulary", {"model.position.kind=alibi", "data.vocabulary=30000", "data.rows=2"}},
        PlanCase{"recompute", {"model.position.kind=rope", "model.recompute=blocks", "data.rows=8"}},
        PlanCase{"vq", {"model.position.kind=xl", kVq}}, PlanCase{"knn", {"model.position.kind=rope", kKnn}, 6},
        PlanCase{"hils", {"model.position.kind=rope", kHils}, 18},
        PlanCase{"moba", {"model.position.kind=rope", kMoba}, 12},
        PlanCase{"muon", {"model.position.kind=rope", "optimizer.kind=muon"}},
        PlanCase{"blocks_of_rows",
                 {"model.position.kind=none", "data.accumulate=2", "data.rows=8", "optimizer.kind=adafactor"}}),
    [](const auto& test) { return test.param.name; });

// A rank's batch is not made to be planned. Beyond a number of tokens the plan follows from smaller ones, and is what
// the next smaller batch lets one expect.
TEST(Plan, NeedsNoMemoryForTheTokensOfABatch) {
  const TemporaryDirectory folder;
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  const auto plan = [&](const std::string& subsequence, const std::string& rows, const std::string& more) {
    const ProgramResult result =
        run_quire({"plan", config, "--json", "data.subsequence=" + subsequence, "data.rows=" + rows, more,
                   "model.attention={softmax: {carry: {kind: kv, length: 64}}}", "evaluate={every: 10, rows: 3}"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_LT(result.resident_bytes, int64_t{250} << 20) << rows;
    return nlohmann::json::parse(result.out);
  };
  for (const char* more : {"data.accumulate=1", "data.accumulate=3"}) {
    const nlohmann::json counted = plan("256", "4096", more);  // 2^20 tokens
    const nlohmann::json derived = plan("256", "8192", more);
    for (const char* key : {"activations", "state", "total", "step"}) {
      const double fixed = key == std::string("total") || key == std::string("step") ? 1e8 : 0;
      EXPECT_NEAR(derived["bytes"][key].get<double>() / (2 * counted["bytes"][key].get<double>() - fixed), 1, 0.02)
          << key << ' ' << derived["bytes"][key] << ' ' << counted["bytes"][key];
    }
    EXPECT_EQ(derived["bytes"]["weights"], counted["bytes"]["weights"]);
    EXPECT_EQ(derived["rows"], 8192);
    EXPECT_NEAR(derived["disk"]["checkpoint"].get<double>() - counted["disk"]["checkpoint"].get<double>(),
                counted["bytes"]["state"].get<double>(), 1e6);
  }
  plan("4096", "1048576", "data.accumulate=1");
  plan("4096", "1048576", "data.accumulate=1048576");
}

// The plan of a long row follows from those of shorter ones, for every shipped kind of model.
TEST(Plan, NeedsNoMemoryForTheTokensOfARow) {
  for (const char* name : {"window", "memorizing", "vq", "landmark", "moba", "hils", "drt"}) {
    const auto plan = [&](int64_t length) {
      const ProgramResult result = run_quire({"plan", fmt::format("{}/configs/{}-small.yaml", QUIRE_SOURCE_DIR, name),
                                              "--json", "data.corpus=none.h5", "data.vocabulary=258", "data.rows=1",
                                              "evaluate.rows=1", fmt::format("data.subsequence={}", length)});
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_LT(result.resident_bytes, int64_t{100} << 20) << name;
      return nlohmann::json::parse(result.out)["bytes"];
    };
    // A chunk of DRT, of 65 positions, lies between the two.
    const nlohmann::json counted = plan(1 << 18), derived = plan((1 << 18) + 65);
    for (const char* key : {"activations", "state", "evaluation"}) {
      const auto bytes = counted[key].get<double>();
      EXPECT_NEAR(derived[key].get<double>(), bytes, 0.01 * bytes) << name << ' ' << key;
    }
    // How many blocks fit nowhere differs from length to length.
    EXPECT_NEAR(derived["total"].get<double>() / counted["total"].get<double>(), 1, 0.25) << name;
    EXPECT_GT(plan(1 << 24)["activations"], 60 * counted["activations"].get<double>()) << name;
  }
}

// With telemetry, an evaluation and checkpoints.
TEST(Plan, AWholeRunIsWithinFivePercent) {
  const TemporaryDirectory folder;
  write_corpus(folder / "c.h5",
               {{"train", texts_of_lengths({9000, 5000, 7000, 8000})}, {"valid", texts_of_lengths({900})}});
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  const std::vector<std::vector<std::string>> models{{"model.position.kind=xl", kVq},
                                                     {"model.position.kind=rope", kKnn}};
  for (size_t i = 0; i < models.size(); ++i) {
    std::vector<std::string> settings{config,
                                      "data.corpus=" + (folder / "c.h5").string(),
                                      "data.vocabulary=none",
                                      "schedule={warmup: 1, steps: 8}",
                                      "log.every=1",
                                      "evaluate={every: 8, rows: 2}"};
    settings.insert(settings.end(), models[i].begin(), models[i].end());
    std::vector<std::string> plan_arguments{"plan", "--json"};
    std::vector<std::string> train_arguments{"train", "--run-dir", (folder / std::to_string(i)).string()};
    plan_arguments.insert(plan_arguments.end(), settings.begin(), settings.end());
    train_arguments.insert(train_arguments.end(), settings.begin(), settings.end());
    const ProgramResult planned = run_quire(plan_arguments);
    ASSERT_EQ(planned.code, 0) << planned.err;
    const ProgramResult trained = run_quire(train_arguments);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const nlohmann::json bytes = nlohmann::json::parse(planned.out)["bytes"];
    double step = 0;
    for (const char* part : {"weights", "gradients", "moments", "average", "state", "activations"}) {
      step += bytes[part].get<double>();
    }
    double peak = 0;
    for (const auto& line : read_metrics(folder / std::to_string(i) / "metrics.jsonl")) {
      peak = std::max(peak, line.value("peak_bytes", 0.0));
    }
    EXPECT_NEAR(step / peak, 1, 0.05) << models[i][1];
    EXPECT_NEAR(bytes["total"].get<double>() / static_cast<double>(trained.resident_bytes), 1, 0.05) << planned.out;
  }
}

// The longest document bounds what rows can carry, whatever a memory could hold.
TEST(Plan, MemoriesAreNoFullerThanADocumentMakesThem) {
  const TemporaryDirectory folder;
  write_corpus(folder / "c.h5", {{"train", texts_of_lengths({2000, 3000})}, {"valid", texts_of_lengths({900})}});
  const auto activations = [&](const std::string& corpus, const std::string& length) {
    return make_plan(
               parse_config<RunConfig>(
                   kConfig, "plan.yaml",
                   {"data.corpus=" + corpus, "data.vocabulary=258", "data.rows=2", "model.position.kind=rope",
                    "model.attention={kind: moba, moba: {block: 64, top_k: 4, carry: {length: " + length + "}}}"}),
               1, 2)
        .activations;
  };
  const std::string corpus = (folder / "c.h5").string();
  EXPECT_EQ(activations(corpus, "100"), activations(corpus, "46"));  // 46 blocks of 64 are in 3000 tokens
  EXPECT_GT(activations("none.h5", "100"), activations("none.h5", "46"));
  EXPECT_GT(activations(corpus, "46"), activations(corpus, "20"));
}

// It gives blocks of a step back when sizes that have passed make the cache of the allocator large.
TEST(Plan, AnEvaluationNeverLowersTheWhole) {
  const Plan plan =
      make_plan(parse_config<RunConfig>(kConfig, "plan.yaml",
                                        {"model.position.kind=rope", kHils, "evaluate={every: 10, rows: 1}"}),
                1, 2);
  EXPECT_GT(plan.evaluation, 0);
  EXPECT_EQ(plan.evaluation_blocks, 0);
  EXPECT_GE(plan.total(), plan.step());
}

// A probe runs on the device of the plan, and only when it is requested.
TEST(Plan, AProbeTellsTheTimeOfTheRun) {
  const TemporaryDirectory folder;
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  const std::vector<std::string> small{"plan",
                                       config,
                                       "model.width=32",
                                       "model.layers=1",
                                       "model.mlp.hidden=32",
                                       "schedule.steps=1000",
                                       "model.position.kind=rope",
                                       "run.device=cpu"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = small;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  };
  const ProgramResult silent = with({});
  EXPECT_EQ(silent.out.find("tokens/s"), std::string::npos) << silent.out;
  EXPECT_FALSE(nlohmann::json::parse(with({"--json"}).out).contains("probe"));
  const ProgramResult told = with({"--probe"});
  EXPECT_NE(told.out.find("time on cpu-"), std::string::npos) << told.out << told.err;
  EXPECT_NE(told.out.find(" for 1000 steps, "), std::string::npos) << told.out;
  const nlohmann::json probe = nlohmann::json::parse(with({"--probe", "--json"}).out)["probe"];
  EXPECT_NEAR(probe["seconds"].get<double>(), probe["step_ms"].get<double>(), 1e-6);  // 1000 steps
  EXPECT_NEAR(probe["tokens_per_second"].get<double>() * probe["step_ms"].get<double>() / 1000, 4 * 384, 1);
  EXPECT_EQ(with({"--probe", "-n", "2"}).code, 2);
  if (load_cuda().gpu.empty()) {
    const ProgramResult elsewhere = with({"run.device=cuda", "--probe"});
    EXPECT_EQ(elsewhere.code, 2);
    EXPECT_EQ(elsewhere.out, "");
  }
}

TEST(Plan, RanksShareTheRows) {
  const TemporaryDirectory folder;
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  const auto plan = [&](const std::string& ranks) {
    return nlohmann::json::parse(run_quire({"plan", config, "--json", "-n", ranks}).out);
  };
  EXPECT_EQ(plan("1")["rows"], 4);
  EXPECT_EQ(plan("3")["rows"], 2);
  EXPECT_LT(plan("4")["bytes"]["activations"], plan("2")["bytes"]["activations"]);
  const ProgramResult result = run_quire({"plan", config, "-n", "5"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("-n 5: data.rows is 4, and a rank without a row only waits"), std::string::npos)
      << result.err;
}

// Whatever a memory looks at when it runs: planning only counts. One in a file is no main memory.
TEST(Plan, CountsMemoriesOfEveryKind) {
  const auto plan_of = [](const std::string& options, const std::string& carry = "") {
    return make_plan(parse_config<RunConfig>(kConfig, "plan.yaml",
                                             {"model.memory=[{kind: knn, layers: [3], carry: {length: 50000" + carry +
                                              "}" + options + "}]"}),
                     1, 2);
  };
  const int64_t whole = 2 * 4 * int64_t{50000} * 192 * 4;
  for (const std::string options : {", search: inverted", ", closed_when_empty: true, least: 10", ", stale: {keep: 3}",
                                    ", search: bucketed, top_k: 50", ", combine: joint"}) {
    EXPECT_GE(plan_of(options).state, whole) << options;
  }
  EXPECT_LT(plan_of("", ", place: file").state, whole / 10);
  EXPECT_GE(plan_of("", ", place: file").file_state, whole);
  // Wherever it lies, it is saved row by row: beside it there are images of files with weights or moments.
  for (const std::string place : {"file", "device", "host"}) {
    const Plan plan = plan_of("", ", place: " + place);
    EXPECT_GE(plan.checkpoint, whole) << place;
    EXPECT_LT(plan.checkpoint_work, 3 * plan.moments) << place;
    EXPECT_LT(plan.checkpoint_work, whole / 3) << place;
  }
  EXPECT_LT(plan_of("", ", dtype: int8").state, whole / 3);
  EXPECT_EQ(plan_of("", ", dtype: fp8").state, plan_of("", ", dtype: int8").state);
}

// On a GPU blocks in 8 bits are read in the type of the model, which takes memory beside the pass.
TEST(Plan, CountsBlocksThatAreDequantized) {
  const auto plan_of = [](const std::string& device, const std::string& dtype) {
    return make_plan(
        parse_config<RunConfig>(kConfig, "plan.yaml",
                                {"run.device=" + device, "model.position.kind=rope",
                                 "model.attention={kind: moba, moba: {carry: {length: 20000, dtype: " + dtype + "}}}"}),
        1, 2);
  };
  EXPECT_LT(plan_of("cpu", "int8").state, plan_of("cpu", "auto").state / 3);
  // Blocks that a step adds wait for its end as they are stored.
  EXPECT_LT(plan_of("cpu", "int8").activations, plan_of("cpu", "auto").activations);
  const int64_t dequantized = plan_of("cuda", "int8").activations - plan_of("cuda", "auto").activations;
  // Rows, queries, heads and blocks: as many entries as a layer may choose. All six layers keep theirs for the backward
  // pass, keys and values in bf16.
  constexpr int64_t kEntries = 4 * 384 * 4 * 3;
  EXPECT_GT(dequantized, 6 * kEntries * 64 * 192 * 2 * 2);
}

// The longest document has 300 bytes and BOS.
TEST(Plan, NamesStateThatNoDocumentFills) {
  const TinyRun tiny;
  const auto attention = [](const std::string& length) {
    return "model.attention={kind: hils, hils: {chunk: 8, window: 12, carry: {length: " + length + "}}}";
  };
  const std::string line =
      "model.attention.hils.carry.length: 10000 entries hold 70000 tokens, and the longest document has 300: 43 are "
      "enough for it";
  const std::string rope = "model.position.kind=rope";
  const ProgramResult planned = run_quire({"plan", tiny.config().string(), rope, attention("10000")});
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_NE(planned.out.find("state: " + line), std::string::npos) << planned.out;
  const ProgramResult trained = tiny.train("idle", {rope, attention("10000"), "schedule.steps=2"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find(line), std::string::npos) << trained.err;
  for (const char* length : {"43", "85"}) {
    const ProgramResult other = run_quire({"plan", tiny.config().string(), rope, attention(length)});
    EXPECT_EQ(other.out.find("are enough"), std::string::npos) << other.out;
  }
}

// bf16 activations and caches, f32 weights with a bf16 copy of the matrices, the scratch of CUDA kernels.
TEST(Plan, NeedsNoGpu) {
  const TemporaryDirectory folder;
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  const auto bytes = [&](const char* precision) {
    const ProgramResult result =
        run_quire({"plan", config, "--json", "run.device=cuda", precision,
                   "model.attention.softmax.carry={kind: kv, length: 384}", "model.position.kind=rope"});
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out)["bytes"];
  };
  const nlohmann::json wide = bytes("run.precision=f32");
  const nlohmann::json mixed = bytes("run.precision=auto");
  EXPECT_EQ(mixed["gradients"], wide["gradients"]);
  EXPECT_EQ(mixed["state"].get<int64_t>() * 2, wide["state"].get<int64_t>());
  EXPECT_NEAR(mixed["weights"].get<double>() / wide["weights"].get<double>(), 1.5, 0.01);
  EXPECT_LT(mixed["activations"].get<double>(), 0.65 * wide["activations"].get<double>());
  EXPECT_EQ(mixed["workspace"].get<size_t>(), kProductWorkspaceBytes);
}

// cuDNN's workspace and the lines of keys and values, which its calls take while the sweep holds what it needs. Other
// operations of the sweep take some of that room too, when no attention does.
TEST(Plan, CountsWhatAttentionThroughCudnnTakes) {
  if (!load_cuda().gpu.empty()) GTEST_SKIP() << "a GPU says itself what cuDNN does there";
  const auto activations = [&](const std::string& implementation, std::vector<std::string> settings = {}) {
    settings.insert(settings.begin(), {"data.subsequence=2048", "run.precision=auto",
                                       "model.attention.softmax.carry={kind: kv, "
                                       "length: 2048}"});
    settings.insert(settings.end(),
                    {"run.device=cuda", "model.position.kind=rope", "model.layers=2", "model.mlp.hidden=64",
                     "data.rows=2", "data.vocabulary=300", "model.attention.softmax.implementation=" + implementation});
    return make_plan(parse_config<RunConfig>(kConfig, "plan.yaml", settings), 1, 2).activations;
  };
  const int64_t own = activations("own");
  constexpr int64_t kWorkspace = int64_t{2} * 4 * 2048 * (2048 + 2048) * 2;  // rows, heads, queries, keys, bf16
  constexpr int64_t kLine = int64_t{2} * (2048 + 2048) * 192 * 2;
  for (const char* pack : {"data.pack=pad", "data.pack=concat"}) {
    const int64_t cudnn = activations("cudnn", {pack});
    EXPECT_GE(cudnn - own, kWorkspace) << pack;
    // Keys, values and their gradients, and small tables.
    EXPECT_LE(cudnn - own, kWorkspace + 4 * kLine + (1 << 18)) << pack;
    // The kernels that a run with auto will choose are unknown, so the plan takes the larger need.
    EXPECT_EQ(activations("auto", {pack}), cudnn) << pack;
  }
  // cuDNN has no plan that needs so much workspace, and no kernels in f32.
  EXPECT_EQ(activations("auto", {"data.subsequence=16384"}), activations("own", {"data.subsequence=16384"}));
  EXPECT_EQ(activations("auto", {"run.precision=f32"}), activations("own", {"run.precision=f32"}));
}

// State in host memory takes no memory of the GPU, but the part that a pass has chosen does, until the sweep is over.
TEST(Plan, CountsWhatComesFromHostMemory) {
  const auto plan_of = [](const std::string& place) {
    return make_plan(parse_config<RunConfig>(
                         kConfig, "plan.yaml",
                         {"run.device=cuda", "run.precision=f32", "model.position.kind=alibi",
                          "model.stack={kind: drt, drt: {chunk: 31, top_k: 2, groups: 1, carry: {length: 99, place: " +
                              place + "}}}"}),
                     1, 2);
  };
  const Plan device = plan_of("device"), host = plan_of("host");
  constexpr int64_t kRows = 4, kChunk = 31 * 192 * int64_t{sizeof(float)};  // keys or values
  const int64_t stored = 2 * kRows * 100 * kChunk;
  const int64_t lists = 1 + 384 / 32;
  EXPECT_EQ(host.host_state, stored);
  EXPECT_EQ(device.state - host.state, stored);
  EXPECT_EQ(host.activations - device.activations, 2 * kRows * lists * 2 * kChunk);
}

TEST(Plan, ARunWithoutItsGpuSaysWhy) {
  if (!load_cuda().gpu.empty()) GTEST_SKIP() << "there is one";
  const TemporaryDirectory folder;
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  const ProgramResult result = run_quire({"bench", config, "run.device=cuda"});
  EXPECT_EQ(result.code, 2);
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.errors()[0].find("run.device: cuda was asked for but cannot be used: " + load_cuda().reason),
            std::string::npos)
      << result.err;
}

TEST(Plan, WhatDoesNotFitIsRefusedByClass) {
  RunConfig config = parse_config<RunConfig>(kConfig, "plan.yaml");
  Plan plan;
  plan.rows = 4;
  plan.weights = 2'000'000'000;
  plan.gradients = 2'000'000'000;
  plan.moments = 4'000'000'000;
  plan.state = 50'000'000;
  plan.activations = 9'000'000'000;
  plan.program = 16'000'000;
  require_memory(plan, config, 17'050'000'000, "NVIDIA H200");  // to the byte
  EXPECT_ERROR(require_memory(plan, config, 17'049'999'999, "NVIDIA H200"), ErrorKind::memory,
               "this run needs 17.1 GB but NVIDIA H200 has 17.0 GB for it: weights 2.0 GB, gradients 2.0 GB, moments "
               "4.0 GB, state 50 MB, activations 9.0 GB. What would help most: model.recompute: blocks, or "
               "data.accumulate above 1");
  plan.moments = 20'000'000'000;
  EXPECT_ERROR(require_memory(plan, config, 17'000'000'000, "NVIDIA H200"), ErrorKind::memory,
               "What would help most: optimizer.kind: adafactor");
  plan.evaluation = 31'000'000'000;  // in place of activations
  EXPECT_ERROR(
      require_memory(plan, config, 17'000'000'000, "NVIDIA H200"), ErrorKind::memory,
      "activations 9.0 GB, evaluation 22.0 GB. What would help most: fewer evaluate.rows, or evaluate.every: 0");
}

TEST(Plan, StepsThatFitAreTimedWhereAnEvaluationWouldNotFit) {
  const TemporaryDirectory folder;
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  std::vector<std::string> arguments{config, "run.device=cpu", "evaluate.every=10", "evaluate.rows=40000", "--json"};
  std::vector<std::string> plan{"plan"};
  plan.insert(plan.end(), arguments.begin(), arguments.end());
  const ProgramResult planned = run_quire(plan);
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_GT(nlohmann::json::parse(planned.out)["bytes"]["total"], int64_t{1} << 37);
  std::vector<std::string> bench{"bench", "--steps", "1", "--warmup", "0"};
  bench.insert(bench.end(), arguments.begin(), arguments.end());
  const ProgramResult result = run_quire(bench);
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(Plan, ARunThatDoesNotFitEndsBeforeItBegins) {
  const TemporaryDirectory folder;
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  const ProgramResult result =
      run_quire({"bench", config, "run.device=cpu", "model.width=65536", "model.heads=64", "model.layers=64"});
  EXPECT_EQ(result.code, 8);
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.errors()[0].find("but this machine has"), std::string::npos) << result.err;
}

// No machine here could hold this model.
TEST(Plan, NeedsNoMemoryForALargeModel) {
  const TemporaryDirectory folder;
  const std::string config = (folder / "plan.yaml").string();
  write_file_durably(config, std::string_view(kConfig));
  const ProgramResult result =
      run_quire({"plan", config, "--json", "model.width=8192", "model.layers=80", "model.heads=64",
                 "model.mlp.hidden=28672", "data.vocabulary=128000", "data.subsequence=8192"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(nlohmann::json::parse(result.out)["bytes"]["total"], int64_t{1} << 40);
}

}  // namespace
}  // namespace quire::test
