// Exports runs and imports them again.
#include "tests/exchange/exchange_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_run.h"
#include "trainers/exchange/export_tokenizer.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Everything of two runs' newest checkpoints.
void expect_same_run(const fs::path& a, const fs::path& b) {
  expect_same_checkpoint(resolve_checkpoint(a), resolve_checkpoint(b));
  EXPECT_EQ(read_all(a / "config.yaml"), read_all(b / "config.yaml"));
}

struct Kind {
  std::string name;
  std::vector<std::string> settings;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class OwnNames : public ::testing::TestWithParam<Kind> {};

// With moments, averages and what rows carry, so that the run goes on as if it had never left.
TEST_P(OwnNames, ARunComesBackBitForBit) {
  const TinyRun tiny;
  std::vector<std::string> settings{"schedule.steps=3", "optimizer.ema.decay=0.9", "data.pack=pad"};
  settings.insert(settings.end(), GetParam().settings.begin(), GetParam().settings.end());
  const ProgramResult trained = tiny.train("run", settings);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string out = (tiny / "out").string(), back = (tiny / "back").string();
  const ProgramResult exported = run_quire({"export", (tiny / "run").string(), "--own-names", "--output", out});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const ProgramResult imported = run_quire({"import", out, "--output", back});
  ASSERT_EQ(imported.code, 0) << imported.err;
  expect_same_run(tiny / "run", tiny / "back");
  EXPECT_EQ(tiny.resume("back", {"schedule.steps=4"}).code, 0);
}

const Kind kKinds[] = {
    {"xl", {}},
    {"window", {"model.position.kind=rope", "model.attention={softmax: {window: 8, carry: {kind: kv}}}"}},
    {"knn", {"model.position.kind=t5", "model.memory=[{kind: knn, layers: [-1], carry: {length: 64}, top_k: 4}]"}},
    {"vq", {"model.attention={kind: vq}"}},
    {"landmark", {"model.position.kind=rope", "model.attention={kind: landmark}"}},
    {"moba", {"model.position.kind=rope", "model.attention={kind: moba}"}},
    {"hils", {"model.position.kind=rope", "model.attention={kind: hils}"}},
    {"infini", {"model.position.kind=none", "model.attention={kind: infini}"}},
    {"delta", {"model.position.kind=none", "model.attention={kind: delta}"}},
    {"block_recurrent", {"model.position.kind=t5", "model.attention={kind: block_recurrent}"}},
    {"drt",
     {"model.position.kind=rope", "model.attention={softmax: {}}", "model.layers=3",
      "model.stack={kind: drt, drt: {groups: 1}}"}},
};
INSTANTIATE_TEST_SUITE_P(Mechanisms, OwnNames, ::testing::ValuesIn(kKinds),
                         [](const auto& tested) { return tested.param.name; });

class Exported : public ::testing::TestWithParam<fs::path> {
 protected:
  static ProgramResult run(std::vector<std::string> arguments) {
    ProgramResult result = run_quire(std::move(arguments));
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  }
  static nlohmann::json json_of(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const ProgramResult result = run(std::move(arguments));
    return result.code == 0 ? nlohmann::json::parse(result.out) : nlohmann::json::object();
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  TemporaryDirectory folder_{TemporaryDirectory::fast_parent()};
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Exported);

// The golden values of the imported model are those of the exported one: its weights and its configuration are equal.
TEST_P(Exported, AnImportedModelKeepsItsArchitectureAndComesBack) {
  const nlohmann::json imported = json_of({"import", GetParam().string(), "--output", path("run")});
  const nlohmann::json exported = json_of({"export", path("run"), "--output", path("out")});
  EXPECT_EQ(exported.at("architecture"), imported.at("architecture"));
  run({"import", path("out"), "--output", path("back")});
  const CheckpointPart before = CheckpointReader::open(resolve_checkpoint(path("run"))).read_part("model");
  const CheckpointPart after = CheckpointReader::open(resolve_checkpoint(path("back"))).read_part("model");
  ASSERT_EQ(before.tensors.size(), after.tensors.size());
  for (size_t i = 0; i < before.tensors.size(); ++i) {
    EXPECT_EQ(before.tensors[i].name, after.tensors[i].name);
    // Gemma's gains are stored less 1.
    EXPECT_LE(relative_error(after.tensors[i].tensor, before.tensors[i].tensor), 1e-7) << before.tensors[i].name;
  }
  const nlohmann::json config = nlohmann::json::parse(read_all(folder_ / "out/config.json"));
  if (config.contains("rope_theta")) {
    EXPECT_TRUE(config.contains("rope_parameters"));
    EXPECT_TRUE(config.contains("rope_scaling"));
  }
  EXPECT_EQ(read_all(folder_ / "run/config.yaml"), read_all(folder_ / "back/config.yaml"));
}

INSTANTIATE_TEST_SUITE_P(Models, Exported, ::testing::ValuesIn(exchange_models()),
                         [](const auto& tested) { return tested.param.filename().string(); });

class ExportTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run_quire({"import", model(), "--output", path("run")}).code, 0); }
  static std::string model() { return exchange_models().front().string(); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  TemporaryDirectory folder_{TemporaryDirectory::fast_parent()};
};

TEST_F(ExportTest, NothingThatExistsIsOverwritten) {
  write_all(folder_ / "file", "mine");
  fs::create_directory(folder_ / "empty");
  for (const char* taken : {"file", "empty", "run"}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"import", model()}, {"export", path("run")}}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--output", path(taken)});
      const ProgramResult result = run_quire(arguments);
      EXPECT_EQ(result.code, 2);
      ASSERT_EQ(result.errors().size(), 1U);
      EXPECT_NE(result.errors()[0].find("exists already"), std::string::npos) << result.errors()[0];
    }
  }
  EXPECT_EQ(read_all(folder_ / "file"), "mine");
  EXPECT_TRUE(fs::is_empty(folder_ / "empty"));
}

TEST_F(ExportTest, NarrowTypesAreWritten) {
  for (const char* type : {"bf16", "f16", "f64"}) {
    const ProgramResult result = run_quire({"export", path("run"), "--dtype", type, "--output", path(type)});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(run_quire({"import", path(type), "--output", path((std::string(type) + "-back").c_str())}).code, 0);
  }
  // Weights that were imported as bf16 go out as they came.
  EXPECT_EQ(run_quire({"export", path("bf16-back"), "--output", path("bf16-again")}).code, 0);
  EXPECT_EQ(read_all(folder_ / "bf16-again/model.safetensors"), read_all(folder_ / "bf16/model.safetensors"));
  EXPECT_EQ(nlohmann::json::parse(read_all(folder_ / "bf16-again/config.json")).at("torch_dtype"), "bfloat16");
}

TEST(ExportTokenizer, FilesOfOtherProgramsAreMadeOfTheStoredText) {
  const TemporaryDirectory folder;
  const std::string json =
      R"({"added_tokens": [{"id": 1, "content": "</s>"}], "model": {"vocab": {"<s>": 0, "a": 2}}})";
  export_tokenizer("hf\n0 1\n" + json, 0, 1, folder.path());
  EXPECT_EQ(read_all(folder / "tokenizer.json"), json);
  const nlohmann::json config = nlohmann::json::parse(read_all(folder / "tokenizer_config.json"));
  EXPECT_EQ(config.at("bos_token"), "<s>");
  EXPECT_EQ(config.at("eos_token"), "</s>");
  export_tokenizer("spm\n6162ff", 1, 2, folder.path());
  EXPECT_EQ(read_all(folder / "tokenizer.model"), "ab\xff");
  EXPECT_EQ(read_all(folder / "tokenizer.txt"), "spm\n6162ff");
}

TEST_F(ExportTest, AnImportedRunHasNothingToResume) {
  const ProgramResult result = run_quire({"train", "--resume", path("run"), "data.corpus=corpus.h5"});
  EXPECT_EQ(result.code, 4);
  ASSERT_EQ(result.errors().size(), 1U);
  EXPECT_NE(result.errors()[0].find("init.from="), std::string::npos) << result.errors()[0];
}

TEST_F(ExportTest, EveryVerbTakesAnImportedRun) {
  const std::string run = path("run");
  for (const char* split : {"train", "valid"}) {
    fs::create_directory(folder_ / split);
    write_all(folder_ / split / "a.txt",
              std::string(split) == "train" ? "7 5 9 7 5 9 7 5 9 11 7\n" : "9 5 7 9 5 7 9\n");
  }
  const std::string tokenizer = read_all(resolve_checkpoint(run) / "tokenizer.txt");
  ASSERT_TRUE(tokenizer.starts_with("ids\n"));
  const std::string corpus = path("corpus.h5");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"prepare", "--split", "train=" + path("train"), "--split", "valid=" + path("valid"),
                                 "--tokenizer", "ids:" + tokenizer.substr(4), "--lossy-tokenizer", "--output", corpus},
        {"inspect", run},
        {"eval", run, "--corpus", corpus, "--split", "valid", "data.subsequence=8"},
        {"generate", run, "--prompt", "5 7 9", "--length", "3"},
        {"bench", run + "/config.yaml", "data.subsequence=8", "data.rows=1", "--steps", "1", "--warmup", "0"},
        {"train", run + "/config.yaml", "init.from=" + run, "data.corpus=" + corpus, "data.subsequence=8",
         "data.rows=1", "schedule.steps=2", "schedule.warmup=0", "evaluate.every=0", "--run-dir", path("tuned")}}) {
    const ProgramResult result = run_quire(command);
    EXPECT_EQ(result.code, 0) << command[0] << ": " << result.err;
  }
}

}  // namespace
}  // namespace quire::test
