// Tests kinds of mechanisms through the program: what an override drops, what is listed, what evaluation may change,
// and which combinations every verb refuses with the same message.
#include <fmt/format.h>

#include "core/config/config.h"
#include "layers/mechanism/mechanism_registry.h"
#include "tests/support/test_mechanisms.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

const std::string kVq = "model.attention={kind: vq, vq: {block: 4, codes: 5, value_size: 6}}";
const std::string kFastWeight = "model.memory=[{kind: fast_weight, layers: [0, 1], chunk: 4}]";

class KindsProgram : public ::testing::Test {
 protected:
  static ProgramResult run(std::vector<std::string> arguments, const std::vector<std::string>& more = {}) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    ProgramOptions options;
    options.program = "quire_with_mechanisms";
    return run_quire(std::move(arguments), options);
  }
  // The one line of an error of usage or configuration.
  static std::string refusal(const ProgramResult& result) {
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_EQ(result.errors().size(), 1U) << result.err;
    return result.errors().empty() ? "" : result.errors().front();
  }
  const TinyRun tiny_;
};

TEST_F(KindsProgram, AnOverrideSaysWhatItDrops) {
  const std::string file = (tiny_ / "vq.yaml").string();
  write_text(file,
             "model:\n"
             "  attention: {kind: vq, vq: {block: 4, codes: 5}}\n"
             "  memory: []\n");
  const ProgramResult kept = run({"config", file, "--print", "full"});
  ASSERT_EQ(kept.code, 0) << kept.err;
  EXPECT_NE(kept.out.find("codes: 5"), std::string::npos) << kept.out;
  EXPECT_EQ(kept.err, "");

  const ProgramResult changed = run({"config", file, "--print", "full", "model.attention.kind=softmax"});
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_NE(changed.out.find("kind: softmax"), std::string::npos) << changed.out;
  EXPECT_EQ(changed.out.find("codes"), std::string::npos) << changed.out;
  const std::string words =
      "model.attention.vq is left out: it belongs to kind: vq, and model.attention.kind is softmax now";
  const size_t said = changed.err.find(words);
  ASSERT_NE(said, std::string::npos) << changed.err;
  EXPECT_EQ(changed.err.find(words, said + 1), std::string::npos) << "twice: " << changed.err;
  // The printed text is a configuration.
  write_text(tiny_ / "printed.yaml", changed.out);
  const ProgramResult again = run({"config", (tiny_ / "printed.yaml").string(), "--print", "full"});
  EXPECT_EQ(again.out, changed.out) << again.err;
}

TEST_F(KindsProgram, AnOverrideOfALayersKindIsPrintedWithoutTheOldSection) {
  const std::string file = (tiny_ / "layers.yaml").string();
  write_text(file, "model:\n  layer_overrides: [{layers: [1], attention: {kind: vq, vq: {block: 4}}}]\n");
  const ProgramResult changed =
      run({"config", file, "--print", "full", "model.layer_overrides.0.attention.kind=softmax"});
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_NE(changed.err.find("model.layer_overrides.0.attention.vq is left out"), std::string::npos) << changed.err;
  write_text(tiny_ / "printed.yaml", changed.out);
  const ProgramResult again = run({"config", (tiny_ / "printed.yaml").string(), "--print", "full"});
  EXPECT_EQ(again.out, changed.out) << again.err;
}

TEST_F(KindsProgram, TheListHasTheOptionsOfEveryKind) {
  register_test_mechanisms();
  const ProgramResult list = run({"config", "--list"});
  ASSERT_EQ(list.code, 0) << list.err;
  const std::string text = "\n" + list.out;
  size_t options = 0;
  for (const Mechanism* mechanism : mechanisms()) {
    if (find_mechanism(mechanism->role, "inserting") == mechanism) continue;  // the program has not registered it
    const std::string section = mechanism->role == Role::mixer    ? "model.attention." + mechanism->kind + "."
                                : mechanism->role == Role::memory ? std::string("model.memory.N.")
                                                                  : "model.stack." + mechanism->kind + ".";
    EXPECT_NE(text.find(mechanism->kind), std::string::npos);
    if (mechanism->options == nullptr) continue;
    mechanism->options().visit([&](const ConfigStruct& listed) {
      for (const ConfigKey& key : list_config_keys(listed)) {
        // Each option has its own help, because memories share names of options.
        const std::string kind = mechanism->role == Role::memory ? "kind: " + mechanism->kind + ". " : "";
        const size_t line = text.find("\n" + section + key.key + ": ");
        EXPECT_NE(line, std::string::npos) << section << key.key;
        EXPECT_NE(text.find("\n    " + kind + key.help + "\n"), std::string::npos) << section << key.key;
        ++options;
      }
    });
  }
  EXPECT_GT(options, 40U);
}

TEST_F(KindsProgram, EvaluationChangesWhatTheFieldsAllow) {
  const std::string knn = "{kind: knn, layers: [1], carry: {length: 24}, top_k: 4}";
  const std::string fast = "{kind: fast_weight, layers: [1], chunk: 4}";
  ASSERT_EQ(
      run(tiny_.train_arguments("memories", {"schedule.steps=2", "model.memory=[" + knn + ", " + fast + "]"})).code, 0);
  ASSERT_EQ(run(tiny_.train_arguments("vq", {"schedule.steps=2", kVq})).code, 0);
  const auto eval = [&](const std::string& name, const std::string& setting) {
    return run({"eval", (tiny_ / name).string(), "--json", setting});
  };
  for (const char* setting : {"model.memory.0.gate=1", "model.memory.0.combine=add", "model.memory.0.stride=2",
                              "model.memory.1.chunk=2", "model.memory.1.weight=0"}) {
    const std::string key = std::string(setting).substr(0, std::string(setting).find('='));
    EXPECT_NE(refusal(eval("memories", setting)).find(key + ": cannot differ from the training run"), std::string::npos)
        << setting;
  }
  for (const char* setting : {"model.attention.vq.codes=6", "model.attention.vq.gate=false",
                              "model.attention.vq.codebook.decay=0.5", "model.attention.kind=softmax"}) {
    EXPECT_NE(refusal(eval("vq", setting)).find("cannot differ from the training run"), std::string::npos) << setting;
  }
  const auto json = [&](const std::string& name, const std::string& setting) {
    const ProgramResult result = eval(name, setting);
    EXPECT_EQ(result.code, 0) << setting << result.err;
    return nlohmann::json::parse(result.out);
  };
  const nlohmann::json memories = json("memories", "model.memory.0.top_k=2");
  EXPECT_EQ(memories["memory"][0]["top_k"], 2);
  EXPECT_NE(memories["nll"], json("memories", "model.memory.0.top_k=4")["nll"]);
  EXPECT_EQ(json("vq", "model.attention.vq.block=8")["attention"]["block"], 8);
  EXPECT_EQ(json("vq", "model.attention.vq.compressive_cache=false")["attention"]["compressive_cache"], false);
}

TEST_F(KindsProgram, EvaluationNamesTheKindsOfTheModel) {
  ASSERT_EQ(run(tiny_.train_arguments(
                    "run", {"schedule.steps=2", kVq, "model.stack.kind=plain",
                            "model.layer_overrides=[{layers: [1], attention: {kind: softmax, softmax: {window: 5}}}]",
                            "model.memory=[{kind: knn, layers: [1], carry: {length: 24}, top_k: 4}]"}))
                .code,
            0);
  const ProgramResult result = run({"eval", (tiny_ / "run").string(), "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["attention"]["kind"], "vq");
  EXPECT_EQ(json["attention"]["block"], 4);
  EXPECT_EQ(json["memory"][0]["kind"], "knn");
  EXPECT_EQ(json["memory"][0]["carry.length"], 24);
  EXPECT_EQ(json["memory"][0]["layers"], std::vector<int>{1});
  EXPECT_EQ(json["stack"]["kind"], "plain");
  // Every layer is listed when layers differ.
  ASSERT_EQ(json["layers"].size(), 2U);
  EXPECT_EQ(json["layers"][0]["kind"], "vq");
  EXPECT_EQ(json["layers"][1]["kind"], "softmax");
}

// Settings that are refused, and a part of the message.
struct Refused {
  std::vector<std::string> settings;
  std::string message;
};

// The file is where --check, plan and train find the same fault, before anything exists.
TEST_F(KindsProgram, EveryVerbRefusesTheSame) {
  const std::vector<Refused> all{
      {{kVq, "data.pack=concat", "data.subsequence=18"}, "data.subsequence: 18 is not a multiple of 4"},
      {{"model.layer_overrides=[{layers: [1], attention: {kind: vq, vq: {block: 5}}}]", "data.pack=concat"},
       "data.subsequence: 16 is not a multiple of 5"},
      {{"run.device=cuda", "model.memory=[{kind: knn, layers: [0], carry: {length: 24, place: file}, top_k: 4}]"},
       "a GPU does not read state in a file"},
      {{kVq, "model.memory=[{kind: knn, layers: [0]}]"}, "layer 0 has attention.kind vq, beside which no memory goes"},
      {{kFastWeight, "model.key_heads=1"}, "fast_weight has a matrix for every head"},
  };
  const std::string config = tiny_.config().string();
  for (const Refused& refused : all) {
    const std::string checked = refusal(run({"config", config, "--check"}, refused.settings));
    EXPECT_NE(checked.find(refused.message), std::string::npos) << checked;
    EXPECT_EQ(refusal(run({"plan", config}, refused.settings)), checked);
    EXPECT_EQ(refusal(run(tiny_.train_arguments("run", refused.settings))), checked);
    EXPECT_FALSE(std::filesystem::exists(tiny_ / "run"));
  }
  // The last documents of padded rows need no alignment.
  const std::vector<std::string> padded{kVq, "data.pack=pad", "data.subsequence=18", "schedule.steps=8"};
  EXPECT_EQ(run({"config", config, "--check"}, padded).code, 0);
  EXPECT_EQ(run({"plan", config}, padded).code, 0);
  const ProgramResult trained = run(tiny_.train_arguments("run", padded));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto metrics = comparable_metrics(tiny_ / "run");
  EXPECT_LT(metrics.back()["loss"], metrics.front()["loss"]);
}

// A token sees the tokens before it in the subsequence, in evaluation as in training; nothing is carried.
TEST_F(KindsProgram, IgnoredLandmarksStoreNothing) {
  const std::string ignoring = "model.attention={kind: landmark, landmark: {block: 3, ignore_landmarks: true";
  const auto with = [&](const std::string& more) {
    return std::vector<std::string>{"schedule.steps=2", "model.position.kind=rope", ignoring + more + "}}"};
  };
  ASSERT_EQ(run(tiny_.train_arguments("run", with(""))).code, 0);
  const std::string trained = (tiny_ / "run").string();
  const ProgramResult result = run({"eval", trained, "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["as_trained"], true);
  EXPECT_FALSE(json["attention"].contains("top_k"));
  EXPECT_NE(refusal(run({"eval", trained, "model.attention.landmark.top_k=2"})).find("landmark.top_k: means nothing"),
            std::string::npos);
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"generate", trained}, {"needle", trained, "--lengths", "256"}}) {
    EXPECT_NE(refusal(run(verb)).find("landmark.ignore_landmarks: true carries nothing"), std::string::npos);
  }
  const std::pair<const char*, const char*> refused[] = {
      {", top_k: 1", "landmark.top_k: means nothing"},
      {", carry: {in_training: true}", "landmark.carry.in_training: means nothing"},
      {", group_dropout: 0.1", "landmark.group_dropout: means nothing"},
      {", context_miss: {enabled: true}", "landmark.context_miss.enabled: with ignore_landmarks"},
  };
  for (const auto& [setting, message] : refused) {
    const std::string line = refusal(run({"config", tiny_.config().string(), "--check"}, with(setting)));
    EXPECT_NE(line.find(message), std::string::npos) << line;
  }
}

TEST_F(KindsProgram, LossTermsAreToldAndTheirWeightMayChange) {
  ASSERT_EQ(run(tiny_.train_arguments("run", {"schedule.steps=10", "schedule.kind=constant", kFastWeight})).code, 0);
  std::filesystem::copy(tiny_ / "run", tiny_ / "other", std::filesystem::copy_options::recursive);
  for (const nlohmann::ordered_json& line : read_metrics(tiny_ / "run/metrics.jsonl")) {
    if (!line.contains("telemetry")) continue;
    ASSERT_TRUE(line["telemetry"].contains("recall_error")) << line.dump();
    EXPECT_GT(line["telemetry"]["recall_error"].get<double>(), 0);
  }
  const auto resume = [&](const std::string& name, const std::vector<std::string>& changes) {
    return run(tiny_.resume_arguments(tiny_ / name, changes));
  };
  // `chunk` is another model.
  EXPECT_NE(refusal(resume("run", {"model.memory.0.chunk=2", "schedule.steps=14"})).find("cannot change on --resume"),
            std::string::npos);
  ASSERT_EQ(resume("run", {"schedule.steps=14"}).code, 0);
  const ProgramResult changed = resume("other", {"model.memory.0.weight=5", "schedule.steps=14"});
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_NE(read_text(tiny_ / "other/config.yaml").find("weight: 5"), std::string::npos);
  const auto same = comparable_metrics(tiny_ / "run");
  const auto other = comparable_metrics(tiny_ / "other");
  ASSERT_EQ(same.size(), other.size());
  // The first step after the resume has the same weights of the model, and the next one no more.
  EXPECT_EQ(same[10]["loss"], other[10]["loss"]);
  EXPECT_NE(same[13]["loss"], other[13]["loss"]);
  EXPECT_LT(other.back()["telemetry"]["recall_error"], same.back()["telemetry"]["recall_error"]);
}

}  // namespace
}  // namespace quire::test
