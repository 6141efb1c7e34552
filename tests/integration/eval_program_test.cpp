// Tests quire eval as a program: what it prints, what it reads and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

TEST(EvalProgram, PrintsPositionsAsTextAndJson) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::string run = (tiny / "run").string();
  const ProgramResult text = run_quire({"eval", run, "--by-position"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("nats per token  bits per byte"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("32..63"), std::string::npos) << text.out;
  const auto plain = nlohmann::json::parse(run_quire({"eval", run, "--json"}).out);
  const auto json = nlohmann::json::parse(run_quire({"eval", run, "--by-position", "--bins", "25", "--json"}).out);
  EXPECT_EQ(json["nll"], plain["nll"]);
  EXPECT_EQ(json["tokens"], plain["tokens"]);
  ASSERT_EQ(json["by_position"].size(), 3U);
  EXPECT_EQ(json["by_position"][2]["begin"], 50);
  EXPECT_EQ(json["by_position"][2]["tokens"], 11);  // 50..60 of the longer document
  EXPECT_EQ(json["by_position"][2]["bytes"], 10);
  EXPECT_EQ(run_quire({"eval", run, "--bins", "25"}).code, 2);
  EXPECT_EQ(run_quire({"eval", run, "--by-position", "--bins", "0"}).code, 2);
}

TEST(EvalProgram, ChecksItsArgumentsWithoutEvaluating) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::string run = (tiny / "run").string(), losses = (tiny / "losses.h5").string();
  const ProgramResult right = run_quire({"eval", run, "--check", "--by-position", "--losses", losses, "--json"});
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_EQ(right.out, tiny.checkpoint("run", 2).string() + ": valid\n");
  EXPECT_FALSE(std::filesystem::exists(losses));
  EXPECT_EQ(run_quire({"eval", run, "--check", "--split", "none"}).code, 2);
  EXPECT_EQ(run_quire({"eval", run, "--check", "--document", "none"}).code, 2);
  EXPECT_EQ(run_quire({"eval", run, "--check", "evaluate.rows=0"}).code, 2);
}

TEST(EvalProgram, ReadsTheDocumentsThatAreNamed) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::string run = (tiny / "run").string();
  const auto all = nlohmann::json::parse(run_quire({"eval", run, "--documents", "--json"}).out);
  ASSERT_GE(all["by_document"].size(), 2U);
  const auto second = all["by_document"][1];
  const std::string name = second["name"];
  const auto one = nlohmann::json::parse(run_quire({"eval", run, "--document", name, "--documents", "--json"}).out);
  EXPECT_EQ(one["documents"], 1);
  EXPECT_EQ(one["tokens"], second["tokens"]);
  ASSERT_EQ(one["by_document"].size(), 1U);
  EXPECT_EQ(one["by_document"][0]["name"], name);
  EXPECT_NEAR(one["nll"].get<double>() / second["nll"].get<double>(), 1, 1e-5);
  // Documents come in the order of the split, whatever the order of the names, and each once.
  const std::string first = all["by_document"][0]["name"];
  const auto both = nlohmann::json::parse(
      run_quire({"eval", run, "--document", name, "--document", first, "--document", name, "--documents", "--json"})
          .out);
  ASSERT_EQ(both["by_document"].size(), 2U);
  EXPECT_EQ(both["by_document"][0]["name"], first);
  const ProgramResult unknown = run_quire({"eval", run, "--document", name + "x"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err,
            "quire: error: --document: split valid has no document '" + name + "x'; did you mean " + name + "?\n");
  EXPECT_NE(run_quire({"eval", run, "--document", "quite another"}).err.find("prints their names"), std::string::npos);
}

// Several splits make one list, whose entries are those of the splits alone.
TEST(EvalProgram, EvaluatesSeveralSplits) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::string run = (tiny / "run").string();
  const auto eval = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", run, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_quire(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::ordered_json::parse(result.out);
  };
  auto both = eval({"--split", "train", "--split", "valid"});
  ASSERT_EQ(both["evaluations"].size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    auto alone = eval({"--split", i == 0 ? "train" : "valid"});
    alone.erase("seconds");
    both["evaluations"][i].erase("seconds");
    EXPECT_EQ(both["evaluations"][i], alone);
  }
  EXPECT_EQ(eval({"evaluate.split=[valid, train]"})["evaluations"][0]["nll"], both["evaluations"][1]["nll"]);
  const ProgramResult text = run_quire({"eval", run, "--split", "train", "--split", "valid", "--documents"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("token perplexity"), std::string::npos) << text.out;
  EXPECT_LT(text.out.find("\n  train "), text.out.find("\n  valid ")) << text.out;
  const std::string losses = (tiny / "losses.h5").string();
  EXPECT_EQ(run_quire({"eval", run, "--split", "train", "--split", "valid", "--losses", losses}).code, 2);
  const ProgramResult twice = run_quire({"eval", run, "--split", "valid", "--split", "valid"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.err.find("--split valid: is given twice"), std::string::npos) << twice.err;
}

// Every combination has the figures that it has alone.
TEST(EvalProgram, SweepsOverValuesOfKeys) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::string run = (tiny / "run").string();
  const std::string length = "model.attention.softmax.carry.length", subsequence = "data.subsequence";
  const ProgramResult swept = run_quire({"eval", run, "--sweep", length + "=3,12", "--sweep", subsequence + "=8, 16",
                                         "--split", "train", "--split", "valid", "--json"});
  ASSERT_EQ(swept.code, 0) << swept.err;
  auto list = nlohmann::ordered_json::parse(swept.out)["evaluations"];
  ASSERT_EQ(list.size(), 8U);
  std::set<double> different;
  size_t i = 0;
  for (const char* split : {"train", "valid"}) {
    for (const int cache : {3, 12}) {
      for (const int tokens : {8, 16}) {
        const std::vector<std::string> overrides{length + "=" + std::to_string(cache),
                                                 subsequence + "=" + std::to_string(tokens)};
        auto alone = nlohmann::ordered_json::parse(
            run_quire({"eval", run, "--split", split, overrides[0], overrides[1], "--json"}).out);
        auto& one = list[i++];
        EXPECT_EQ(one["set"], (nlohmann::ordered_json{{length, cache}, {subsequence, tokens}}));
        different.insert(one["nll"].get<double>());
        one.erase("set");
        for (auto* json : {&one, &alone}) json->erase("seconds");
        EXPECT_EQ(one, alone);
      }
    }
  }
  EXPECT_EQ(different.size(), 8U);
  const ProgramResult text = run_quire({"eval", run, "--sweep", subsequence + "=8,16"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find(subsequence), std::string::npos) << text.out;
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 4) << text.out;
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{"--sweep", "data.subsequence"}, "expects KEY=V1,V2"},
      {{"--sweep", "data.subsequence=4,,8"}, "a value is empty"},
      {{"--sweep", "data.subsequence=[4"}, "expects values between commas"},
      {{"--sweep", "data.subsequence=4,4"}, "has the value 4 twice"},
      {{"--sweep", "data.subsequence=4,8", "data.subsequence=4"}, "data.subsequence is given twice"},
      {{"--sweep", "evaluate.rows=1,2"}, "results do not depend on this key"},
      {{"--sweep", "evaluate.split=valid,train"}, "give --split several times"},
      {{"--sweep", "model.width=16,32"}, "model.width: cannot differ from the training run"},
      {{"--sweep", "data.subsequence=8,x"}, "data.subsequence: expects an integer"},
      {{"--sweep", "data.subsequence=8,16", "--losses", (tiny / "l.h5").string()},
       "--losses: holds the losses of one"}};
  for (const auto& [more, message] : wrong) {
    std::vector<std::string> arguments{"eval", run};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_quire(arguments);
    EXPECT_EQ(result.code, 2) << message;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

// Windows and ends of documents are figures of their own: they do not become those of the run.
TEST(EvalProgram, ReadsWindowsAndCountsEnds) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2", "evaluate.every=2"}).code, 0);
  const std::string run = (tiny / "run").string();
  const std::string stored = read_text(tiny / "run/evaluations/valid.latest.json");
  const ProgramResult result = run_quire({"eval", run, "--stride", "4", "--last", "10", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["tokens"], 10 + 6);  // documents of 61 and 6 targets
  EXPECT_EQ(json["stride"], 4);
  EXPECT_EQ(json["last"], 10);
  EXPECT_EQ(json["as_trained"], false);
  EXPECT_EQ(read_text(tiny / "run/evaluations/valid.latest.json"), stored);
  const std::string losses = (tiny / "losses.h5").string();
  EXPECT_EQ(run_quire({"eval", run, "--stride", "4", "--last", "10", "--losses", losses}).code, 0);
  const ProgramResult refused = run_quire({"eval", run, "--stride", "17", "--losses", losses + "2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--stride 17: windows of 16 tokens"), std::string::npos) << refused.err;
  EXPECT_EQ(run_quire({"eval", run, "--stride", "0"}).code, 2);
  EXPECT_EQ(run_quire({"eval", run, "--last", "0"}).code, 2);
}

TEST(EvalProgram, ChoosesTheAverageOfTheWeights) {
  const TinyRun tiny;
  const std::vector<std::string> options{"schedule.steps=6", "evaluate.every=6", "optimizer.ema.decay=0.9"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), options.begin(), options.end());
    return more;
  };
  ASSERT_EQ(tiny.train("trained", with({})).code, 0);
  ASSERT_EQ(tiny.train("average", with({"optimizer.ema.evaluate=true"})).code, 0);
  const auto nll = [&](const std::string& run, const std::vector<std::string>& flags) {
    std::vector<std::string> arguments{"eval", (tiny / run).string(), "--json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = run_quire(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::ordered_json::parse(result.out);
  };
  const auto in_training = [&](const std::string& run) { return comparable_metrics(tiny / run).back()["evaluation"]; };
  EXPECT_NE(nll("trained", {})["nll"], nll("trained", {"--ema"})["nll"]);
  EXPECT_EQ(nll("trained", {})["weights"], "trained");
  EXPECT_EQ(nll("trained", {"--ema"})["nll"], nll("average", {})["nll"]);
  EXPECT_EQ(nll("average", {})["weights"], "average");
  EXPECT_EQ(nll("trained", {})["nll"], nll("average", {"--no-ema"})["nll"]);
  EXPECT_EQ(in_training("trained")["nll"], nll("trained", {})["nll"]);
  EXPECT_EQ(in_training("trained")["weights"], "trained");
  EXPECT_EQ(in_training("average")["nll"], nll("average", {})["nll"]);
  EXPECT_EQ(in_training("average")["weights"], "average");
  const auto text = [&](const std::string& flag) {
    return run_quire({"generate", (tiny / "trained").string(), "--length", "60", "--seed", "3", flag}).out;
  };
  EXPECT_NE(text("--ema"), text("--no-ema"));

  // An average of weights that never change is these weights: it begins with those that init.from names.
  ASSERT_EQ(tiny.train("again", with({"init.from=" + (tiny / "trained").string(), "optimizer.lr=0"})).code, 0);
  EXPECT_EQ(nll("again", {"--ema"})["nll"], nll("trained", {})["nll"]);

  ASSERT_EQ(tiny.train("without", {"schedule.steps=2"}).code, 0);
  const ProgramResult refused = run_quire({"eval", (tiny / "without").string(), "--ema"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("holds no average of the weights; a run keeps one with optimizer.ema.decay"),
            std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace quire::test
