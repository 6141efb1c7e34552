// Checks the report of `quire inspect` on a corpus, a checkpoint and a run.
#include <chrono>
#include <thread>

#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

nlohmann::json inspect(const std::filesystem::path& path, const std::vector<std::string>& flags = {}) {
  std::vector<std::string> arguments{"inspect", path.string(), "--json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const ProgramResult result = run_quire(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return nlohmann::json::parse(result.out);
}

std::string inspect_text(const std::filesystem::path& path) {
  const ProgramResult result = run_quire({"inspect", path.string()});
  EXPECT_EQ(result.code, 0) << result.err;
  return result.out;
}

TEST(Inspect, ACorpus) {
  const TinyRun tiny;
  const nlohmann::json json = inspect(tiny.corpus());
  EXPECT_EQ(json["kind"], "corpus");
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["file_bytes"], std::filesystem::file_size(tiny.corpus()));
  EXPECT_EQ(json["tokenizer"], "byte");
  EXPECT_EQ(json["vocabulary"], 258);
  ASSERT_EQ(json["splits"].size(), 2U);
  const auto& train = json["splits"][0];
  EXPECT_EQ(train["name"], "train");
  EXPECT_EQ(train["documents"], 6);
  EXPECT_EQ(train["tokens"], 589);
  EXPECT_EQ(train["bytes"], 589);
  EXPECT_EQ(train["words"], 6);
  EXPECT_EQ(train["longest"], (nlohmann::json{{"name", "0"}, {"tokens", 300}, {"bytes", 300}}));
  EXPECT_EQ(train["shortest"], (nlohmann::json{{"name", "3"}, {"tokens", 1}, {"bytes", 1}}));
  const std::string text = inspect_text(tiny.corpus());
  for (const char* part : {"checksum", "verified", "tokenizer byte, 258 ids", "split valid: 2 documents, 65 tokens",
                           "longest   0: 60 tokens, 60 bytes"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Inspect, ACorpusWithRecalledTokens) {
  const TinyRun tiny;
  EXPECT_EQ(inspect(tiny.corpus())["splits"][0]["marked"], false);
  const TemporaryDirectory folder;
  const std::filesystem::path corpus = folder / "recall.h5";
  const ProgramResult made = run_quire(
      {"prepare", "--task", "recall", "--set", "length=2048", "--split", "valid=1", "--output", corpus.string()});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(inspect(corpus)["splits"][0]["marked"], true);
  EXPECT_NE(inspect_text(corpus).find("words; recalled tokens are marked\n"), std::string::npos);
}

TEST(Inspect, ACheckpoint) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=4", "optimizer.ema.decay=0.5",
                               "optimizer.groups=[{match: [\"*.mlp.*\"], lr_scale: 0.5}]"})
                .code,
            0);
  const nlohmann::json json = inspect(tiny.checkpoint("run", 4), {"--parameters"});
  EXPECT_EQ(json["kind"], "checkpoint");
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["step"], 4);
  EXPECT_EQ(json["steps"], 4);
  EXPECT_EQ(json["dtype"], "f32");
  EXPECT_EQ(json["skipped"], 0);
  const auto& parameters = json["parameters"];
  int64_t parts = 0;
  for (const auto& part : parameters["parts"]) parts += part["count"].get<int64_t>();
  EXPECT_EQ(parameters["count"], parts);
  EXPECT_EQ(parameters["bytes"], 4 * parts);
  int64_t listed = 0;
  bool has_embedding = false;
  for (const auto& entry : parameters["list"]) {
    int64_t count = 1;
    for (const auto& size : entry["shape"]) count *= size.get<int64_t>();
    EXPECT_EQ(entry["bytes"], 4 * count) << entry;
    listed += count;
    has_embedding = has_embedding || (entry["name"] == "embedding.weight" && entry["shape"] == nlohmann::json{258, 16});
  }
  EXPECT_EQ(listed, parts);
  EXPECT_TRUE(has_embedding);
  EXPECT_EQ(json["optimizer"]["bytes"], 8 * parts);
  EXPECT_EQ(json["optimizer"]["groups"].size(), 1U);
  EXPECT_EQ(json["average"]["bytes"], 4 * parts);
  ASSERT_EQ(json["state"]["rows"].size(), 3U);
  for (const auto& row : json["state"]["rows"]) {
    EXPECT_EQ(row["lengths"].size(), 2U);  // two layers
    for (const auto& length : row["lengths"]) EXPECT_LE(length.get<int64_t>(), 12);
  }
  EXPECT_NE(json["config"].get<std::string>().find("width: 16"), std::string::npos);

  EXPECT_FALSE(inspect(tiny / "run/checkpoints")["parameters"].contains("list"));
  const std::string text = inspect_text(tiny.checkpoint("run", 4).string() + "/");
  for (const char* part : {"all checksums verified", "step 4 of 4", "blocks.N.mlp", "optimizer adamw",
                           "optimizer.groups.0:", "average of the weights, decay 0.5", "row 2: ", "    name: tiny"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("embedding.weight"), std::string::npos);
}

TEST(Inspect, ARun) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=20", "evaluate.every=20"}).code, 0);
  const nlohmann::json json = inspect(tiny / "run");
  EXPECT_EQ(json["kind"], "run");
  EXPECT_EQ(json["name"], "tiny");
  EXPECT_EQ(json["state"], "finished");
  EXPECT_EQ(json["latest"], 20);
  EXPECT_EQ(json["steps"], 20);
  ASSERT_EQ(json["checkpoints"].size(), 2U);
  EXPECT_TRUE(json["checkpoints"][1]["damage"].is_null());
  EXPECT_EQ(json["last_metrics"]["step"], 20);
  EXPECT_EQ(json["last_evaluation"]["evaluation"]["documents"], 2);
  EXPECT_NE(inspect_text(tiny / "run").find("run tiny, finished"), std::string::npos);

  std::filesystem::remove_all(tiny.checkpoint("run", 20));
  EXPECT_EQ(inspect(tiny / "run")["state"], "stopped: --resume goes on");
  std::filesystem::remove_all(tiny.checkpoint("run", 10));
  EXPECT_EQ(inspect(tiny / "run")["state"], "its checkpoints are gone");
  truncate_metrics_after(tiny / "run/metrics.jsonl", 9);
  EXPECT_EQ(inspect(tiny / "run")["state"], "no checkpoint yet: --resume begins again");
  RunningProgram program(tiny.resume_arguments(tiny / "run", {"schedule.steps=100000000", "checkpoint.every=5"}));
  while (program.running() && checkpoint_steps(tiny / "run/checkpoints").empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const ProgramResult while_running = run_quire({"inspect", (tiny / "run").string()});
  EXPECT_NE(while_running.out.find("run tiny, running"), std::string::npos) << while_running.out << while_running.err;
}

}  // namespace
}  // namespace quire::test
