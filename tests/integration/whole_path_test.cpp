// Goes from a folder of texts to numbers and new text, with the program alone.
#include <cmath>

#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> keys_of(const ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// stdout of a verb with --json: one object on one line.
ordered_json only_object(const ProgramResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out.find('\n'), result.out.size() - 1) << result.out;
  ordered_json object = ordered_json::parse(result.out, nullptr, false);
  EXPECT_TRUE(object.is_object()) << result.out;
  return object;
}

// One trained run serves all tests of this file.
class WholePath : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<TinyRun>();
    std::filesystem::create_directories(*shared_ / "books");
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the quire is a gathering of leaves; \xC3\xA9t\xC3\xA9 ";
    write_text(*shared_ / "books/one.txt", text);
    write_text(*shared_ / "books/two.txt", text.substr(0, 300));
    write_text(*shared_ / "books/notes.md", "not a document");
    write_text(*shared_ / "held.txt", text.substr(0, 500));
    write_text(shared_->config(), std::string(kTinyConfig) + "");
    for (const char* ending : {"", ".manifest"}) std::filesystem::remove(shared_->corpus().string() + ending);
    const ProgramResult prepared =
        run_quire({"prepare", "--input", (*shared_ / "books").string(), "--split",
                   "valid=" + (*shared_ / "held.txt").string(), "--output", shared_->corpus().string(), "--json"});
    const ordered_json corpus = only_object(prepared);
    EXPECT_EQ(corpus["splits"]["train"]["documents"], 2);
    EXPECT_EQ(corpus["splits"]["valid"]["bytes"], 500);
    EXPECT_EQ(corpus["ignored_files"], 1);
    const ProgramResult trained = shared_->train("run", {"evaluate.every=10", "schedule.steps=20"});
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(trained.out, "");
  }
  static void TearDownTestSuite() { shared_.reset(); }

  static std::string run() { return (*shared_ / "run").string(); }
  static std::string generate(std::vector<std::string> options) {
    options.insert(options.begin(), {"generate", run()});
    const ProgramResult result = run_quire(options);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }

  static std::unique_ptr<TinyRun> shared_;
};
std::unique_ptr<TinyRun> WholePath::shared_;

TEST_F(WholePath, ARunDirectoryHoldsWhatTheDocumentationSays) {
  const std::filesystem::path folder = *shared_ / "run";
  for (const char* name : {"config.yaml", "metrics.jsonl", "log.txt"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(folder / name)) << name;
  }
  EXPECT_EQ(checkpoint_steps(folder / "checkpoints"), (std::vector<int64_t>{20, 10}));
  const std::vector<ordered_json> lines = read_metrics(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 22U);
  for (const char* key : {"step", "loss", "lr", "grad_norm", "tokens", "tokens_per_second", "step_ms"}) {
    EXPECT_TRUE(lines.front().contains(key)) << key;
  }
  EXPECT_TRUE(lines.back().contains("evaluation"));
}

TEST_F(WholePath, ConfigChecksAndPrintsWhatReadsBackAsTheSame) {
  EXPECT_EQ(run_quire({"config", shared_->config().string(), "--check"}).out,
            shared_->config().string() +
                ": valid; not looked at: memory (quire plan says what a run needs), the run directory\n");
  const ProgramResult full = run_quire({"config", shared_->config().string(), "--print", "full"});
  ASSERT_EQ(full.code, 0) << full.err;
  write_text(*shared_ / "full.yaml", full.out);
  EXPECT_EQ(run_quire({"config", (*shared_ / "full.yaml").string(), "--print", "full"}).out, full.out);
}

TEST_F(WholePath, EvalPrintsTextOrOneObject) {
  const ProgramResult text = run_quire({"eval", run(), "--split", "valid"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("bits per byte"), std::string::npos) << text.out;
  const ordered_json object = only_object(run_quire({"eval", run(), "--split", "valid", "--json"}));
  const std::vector<std::string> keys = keys_of(object);
  for (const char* key :
       {"split", "documents", "tokens", "words", "bytes", "nll", "token_perplexity", "word_perplexity", "bits_per_byte",
        "attention", "memory", "subsequence", "score_first_token", "rows", "context_mean", "seconds"}) {
    EXPECT_NE(std::find(keys.begin(), keys.end(), key), keys.end()) << key;
  }
  EXPECT_EQ(object["bytes"], 500);
  EXPECT_EQ(object["tokens"], 501);
  EXPECT_NEAR(object["bits_per_byte"].get<double>(), object["nll"].get<double>() / std::log(2.0) / 500, 1e-9);
  // Training evaluated the same weights.
  EXPECT_EQ(object["nll"], read_metrics(*shared_ / "run/metrics.jsonl").back()["evaluation"]["nll"]);
}

TEST_F(WholePath, EvaluationRunsWithAnotherCacheAndSubsequence) {
  const ordered_json object = only_object(
      run_quire({"eval", run(), "model.attention.softmax.carry.length=40", "data.subsequence=23", "--json"}));
  EXPECT_EQ(object["attention"]["carry.length"], 40);
  EXPECT_EQ(object["subsequence"], 23);
  EXPECT_GT(object["context_mean"].get<double>(), 23);
}

TEST_F(WholePath, OneSeedGivesOneText) {
  const std::string text = generate({"--prompt", "the quire", "--length", "60", "--seed", "5"});
  EXPECT_EQ("the quire" + text, generate({"--prompt", "the quire", "--length", "60", "--seed", "5", "--echo"}));
  EXPECT_EQ(text, generate({"--prompt", "the quire", "--length", "60", "--seed", "5"}));
  EXPECT_NE(text, generate({"--prompt", "the quire", "--length", "60", "--seed", "6"}));
}

TEST_F(WholePath, TemperatureZeroTakesTheMostLikely) {
  const std::string text = generate({"--prompt", "the", "--length", "40", "--temperature", "0"});
  EXPECT_EQ(text, generate({"--prompt", "the", "--length", "40", "--temperature", "0", "--seed", "9"}));
  EXPECT_EQ(text, generate({"--prompt", "the", "--length", "40", "--top-k", "1"}));
  EXPECT_EQ(text, generate({"--prompt", "the", "--length", "40", "--top-p", "0.000001"}));
}

TEST_F(WholePath, PromptAndTextMayBeLongerThanSubsequenceAndCache) {
  std::string prompt;
  while (prompt.size() < 100) prompt += "of leaves; ";
  const ordered_json object = only_object(
      run_quire({"generate", run(), "--prompt", prompt, "--length", "90", "--temperature", "0.5", "--json"}));
  EXPECT_EQ(object["prompt"], prompt);
  EXPECT_EQ(object["prompt_tokens"], prompt.size() + 1);  // and BOS
  EXPECT_LE(object["tokens"].get<int64_t>(), 90);
  EXPECT_GT(object["tokens"].get<int64_t>(), 0);
  EXPECT_EQ(generate({"--prompt", "", "--length", "0"}), "\n");
  EXPECT_EQ(generate({"--prompt", "[a, b]", "--length", "0", "--echo"}), "[a, b]\n");
}

// Each sample is what its seed gives by itself, though the prompt is read once.
TEST_F(WholePath, SeveralSamplesOfOnePrompt) {
  const ordered_json object = only_object(run_quire(
      {"generate", run(), "--prompt", "the quire", "--length", "30", "--seed", "5", "--samples", "3", "--json"}));
  ASSERT_EQ(object["samples"].size(), 3U);
  for (int seed = 5; seed < 8; ++seed) {
    const ordered_json one = only_object(run_quire(
        {"generate", run(), "--prompt", "the quire", "--length", "30", "--seed", std::to_string(seed), "--json"}));
    EXPECT_EQ(object["samples"][static_cast<size_t>(seed - 5)]["text"], one["text"]);
  }
  const std::string text = generate({"--prompt", "the quire", "--length", "30", "--samples", "2"});
  EXPECT_EQ(text.rfind("== sample 1, seed 1\n", 0), 0U) << text;
  EXPECT_NE(text.find("\n== sample 2, seed 2\n"), std::string::npos) << text;
}

TEST_F(WholePath, APromptMayComeFromAFile) {
  const std::string prompt = "the quire\nis a ";
  const std::string path = (*shared_ / "prompt.txt").string();
  write_text(path, prompt);
  const std::string text = generate({"--prompt", prompt, "--length", "60", "--seed", "5"});
  EXPECT_EQ(generate({"--prompt-file", path, "--length", "60", "--seed", "5"}), text);
  const ordered_json object =
      only_object(run_quire({"generate", run(), "--prompt-file", path, "--length", "60", "--seed", "5", "--json"}));
  EXPECT_EQ(object["prompt_file"], path);
  EXPECT_EQ(object["prompt_tokens"], prompt.size() + 1);  // and BOS
  EXPECT_NE(run_quire({"generate", run(), "--prompt-file", path, "--prompt", "a"}).err.find("excludes"),
            std::string::npos);
  EXPECT_EQ(run_quire({"generate", run(), "--prompt-file", path + "s"}).code, 3);
}

TEST_F(WholePath, BenchNeedsNoCorpus) {
  const ordered_json object = only_object(run_quire(
      {"bench", shared_->config().string(), "data.corpus=none.h5", "--steps", "2", "--warmup", "1", "--json"}));
  for (const char* key : {"config", "device", "threads", "parameters", "tokens_per_second", "step_ms",
                          "model_flops_share", "peak_bytes", "state_bytes"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  for (const char* key : {"median", "min", "max"}) EXPECT_GT(object["step_ms"][key].get<double>(), 0) << key;
}

TEST_F(WholePath, EveryVerbExplainsItself) {
  for (const char* verb : {"prepare", "tokenizer", "train", "eval", "generate", "bench", "config"}) {
    const ProgramResult help = run_quire({verb, "--help"});
    EXPECT_EQ(help.code, 0) << verb;
    EXPECT_NE(help.out.find(std::string("Example:\n  quire ") + verb), std::string::npos) << help.out;
  }
}

}  // namespace
}  // namespace quire::test
