// quire trace: what it prints, the page that it writes, and what it refuses.
#include "tests/faults/expect_fault.h"
#include "tests/support/small_disk.h"

namespace quire::test {
namespace {

class TraceProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const ProgramResult trained = tiny_.train(
        "run", {"schedule.steps=2", "model.memory=[{kind: knn, layers: [1], carry: {length: 64}, top_k: 4}]"});
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  ProgramResult trace(const std::vector<std::string>& more, const std::string& run = "run") const {
    std::vector<std::string> arguments{"trace", (tiny_ / run).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  }
  nlohmann::json traced(std::vector<std::string> more) const {
    more.emplace_back("--json");
    const ProgramResult result = trace(more);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
  std::string path(const std::string& name) const { return (tiny_ / name).string(); }
  TinyRun tiny_;
};

// The data of a page.
nlohmann::json data_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

TEST_F(TraceProgram, PrintsATableJsonAndAPage) {
  const ProgramResult text = trace({"--document", "0", "--html", path("page.html")});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char* part : {"document 0, tokens 0 to 61 of 62", "every subsequence of 16 begins without state",
                           "blocks.1.attention.memory.0", "distance", "page.html"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
  }
  const nlohmann::json json = traced({"--document", "0", "--top", "2"});
  EXPECT_EQ(json["document"], "0");
  EXPECT_EQ(json["split"], "valid");
  EXPECT_EQ(json["cuts"], nlohmann::json({16, 32, 48}));
  ASSERT_EQ(json["tokens"].size(), 62U);
  EXPECT_EQ(json["tokens"][1]["text"], "a");
  EXPECT_TRUE(json["tokens"][0]["nll"].is_null());
  EXPECT_TRUE(json["tokens"][10]["reads"].empty());
  const auto& read = json["tokens"][20]["reads"][0];
  EXPECT_EQ(read["spans"].size(), 2U);
  EXPECT_GT(read["left_out"], 0);
  EXPECT_TRUE(json["tokens"][61]["reads"].empty());  // the end of the document is predicted, not read

  const nlohmann::json data = data_of(read_text(tiny_ / "page.html"));
  EXPECT_EQ(data["text"].size(), 62U);
  EXPECT_EQ(data["reads"].size(), 62U);
  EXPECT_EQ(data["layers"], nlohmann::json::parse(R"([["blocks.1.attention.memory.0", 2]])"));
  EXPECT_EQ(data["reads"][20][3], 4);
}

// The losses are those of an evaluation, and their sum is that of the document.
TEST_F(TraceProgram, LossesAreThoseOfAnEvaluation) {
  const ProgramResult evaluated = run_quire({"eval", path("run"), "--documents", "--json"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const auto document = nlohmann::json::parse(evaluated.out)["by_document"][0];
  ASSERT_EQ(document["name"], "0");
  double nll = 0;
  const auto trace = traced({"--document", "0"});
  for (const auto& token : trace["tokens"]) {
    if (!token["nll"].is_null()) nll += token["nll"].get<double>();
  }
  EXPECT_NEAR(document["nll"].get<double>(), nll, 1e-3);
}

// Without state a loss depends on its subsequence alone; with state, on what came before it.
TEST_F(TraceProgram, LossesWithoutStateDependOnTheSubsequenceAlone) {
  const std::string end(32, 'e');
  const auto one = traced({"--prompt", "abcdefghijklmno" + end})["tokens"];
  const auto other = traced({"--prompt", "zyxwvutsrqponml" + end})["tokens"];
  bool differs = false;
  for (size_t i = 17; i < 32; ++i) {
    EXPECT_EQ(one[i]["nll_without_state"], other[i]["nll_without_state"]) << i;
    differs = differs || one[i]["nll"] != other[i]["nll"];
  }
  EXPECT_TRUE(differs);
  for (size_t i = 1; i < 16; ++i) EXPECT_EQ(one[i]["nll"], one[i]["nll_without_state"]) << i;
  EXPECT_NE(one[20]["nll"], one[20]["nll_without_state"]);
}

// A part of the text is traced as it is in a trace of all of it.
TEST_F(TraceProgram, APartIsThatOfTheWhole) {
  const auto whole = traced({"--document", "0"});
  const auto part = traced({"--document", "0", "--from", "32", "--count", "20"});
  ASSERT_EQ(part["tokens"].size(), 20U);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(part["tokens"][i], whole["tokens"][32 + i]) << i;
  EXPECT_EQ(part["cuts"], nlohmann::json({48}));
  const auto last = traced({"--document", "0", "--from", "61"});
  EXPECT_EQ(last["tokens"][0], whole["tokens"][61]);
}

TEST_F(TraceProgram, TextsOfOtherBytesReachThePage) {
  const std::string prompt = "</script><b>&\"\xc3\xa9 \xff \xe2\x82\xac, and so on and on and on";
  write_text(tiny_ / "prompt.txt", prompt);
  const auto json = traced({"--prompt-file", path("prompt.txt"), "--html", path("page.html")});
  EXPECT_EQ(json["prompt_file"], path("prompt.txt"));
  std::string text;
  for (const auto& token : json["tokens"]) text += token["text"].get<std::string>();
  EXPECT_EQ(text, "</script><b>&\"\xc3\xa9 \xef\xbf\xbd \xe2\x82\xac, and so on and on and on");
  const auto data = data_of(read_text(tiny_ / "page.html"));
  text.clear();
  for (const auto& piece : data["text"]) text += piece.get<std::string>();
  EXPECT_EQ(text, "</script><b>&\"\xc3\xa9 \xef\xbf\xbd \xe2\x82\xac, and so on and on and on");
}

TEST_F(TraceProgram, WhatMeansNothingIsRefused) {
  EXPECT_FAULT(trace({}), 2, "trace: needs a text; give --prompt, --prompt-file or --document");
  EXPECT_FAULT(trace({"--prompt", ""}), 2, "--prompt");
  EXPECT_FAULT(trace({"--prompt", "a", "--document", "0"}), 2, "--document");
  EXPECT_FAULT(trace({"--prompt", "a", "--split", "valid"}), 2, "--document");
  EXPECT_FAULT(trace({"--prompt", "a", "--top", "0"}), 2, "--top");
  EXPECT_FAULT(trace({"--prompt", "abc", "--from", "4"}), 2, "--from 4: the prompt has 4 tokens, counted from 0");
  EXPECT_FAULT(trace({"--prompt", "abc", "--from", "2", "--count", "3"}), 2, "--count 3: the prompt has 2 tokens");
  EXPECT_FAULT(trace({"--document", "7"}), 2, "--document: split valid has no document '7'");
  EXPECT_FAULT(trace({"--prompt-file", path("none.txt")}), 3, "none.txt");
  EXPECT_FAULT(trace({"--prompt", "a", "data.rows=5"}), 2, "data.rows: cannot differ from the training run");
  write_text(tiny_ / "long.txt", std::string(100'000, 'a'));
  EXPECT_FAULT(trace({"--prompt-file", path("long.txt")}), 2, "100001 tokens of ");
  EXPECT_EQ(trace({"--prompt-file", path("long.txt"), "--from", "20", "--count", "40"}).code, 0);
}

TEST_F(TraceProgram, ModelsThatRetrieveNothingAreRefused) {
  ASSERT_EQ(tiny_.train("plain", {"schedule.steps=1", "schedule.warmup=1"}).code, 0);
  EXPECT_FAULT(trace({"--prompt", "a", "--html", path("page.html")}, "plain"), 2,
               "no layer of this model retrieves earlier tokens, so there is nothing to trace");
  EXPECT_FALSE(std::filesystem::exists(tiny_ / "page.html"));
  // A text of one subsequence has nothing to retrieve.
  const ProgramResult result = trace({"--prompt", "abc", "--html", path("page.html")});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("none of these tokens has retrieved anything"), std::string::npos) << result.out;
  EXPECT_EQ(data_of(read_text(tiny_ / "page.html"))["about"], "None of these tokens has retrieved anything.");
}

TEST_F(TraceProgram, PagesReplacePagesOnly) {
  ASSERT_EQ(trace({"--document", "0", "--html", path("page.html")}).code, 0);
  const std::string page = read_text(tiny_ / "page.html");
  EXPECT_EQ(trace({"--document", "0", "--html", path("page.html")}).code, 0);
  EXPECT_EQ(read_text(tiny_ / "page.html"), page);
  write_text(tiny_ / "other.html", "<!DOCTYPE html>\n<title>mine</title>\n");
  std::filesystem::create_symlink(tiny_ / "page.html", tiny_ / "link.html");
  for (const auto& [file, code, message] :
       {std::tuple{path("other.html"), 2, "exists already and is not a page of quire trace"},
        std::tuple{path("run.yaml"), 2, "exists already and is not a page of quire trace"},
        std::tuple{path("link.html"), 2, "link.html: is a link"},
        std::tuple{std::string("/dev/null"), 2, "is a device"},
        std::tuple{std::string("/no/such/folder/a.html"), 7, "there is no folder /no/such/folder"}}) {
    EXPECT_FAULT(trace({"--document", "0", "--html", file}), code, message);
  }
  EXPECT_EQ(read_text(tiny_ / "other.html"), "<!DOCTYPE html>\n<title>mine</title>\n");
  EXPECT_EQ(read_text(tiny_ / "page.html"), page);
}

TEST_F(TraceProgram, AFullDiskLeavesWhatWasThere) {
  const SmallDisk disk(200);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk is not permitted here";
  const std::string page = (disk.path() / "page.html").string();
  ASSERT_EQ(trace({"--document", "0", "--html", page}).code, 0);
  const std::string before = read_text(page);
  write_text(disk.path() / "filler", std::string(std::filesystem::space(disk.path()).available, 'x'));
  const ProgramResult full = trace({"--document", "0", "--html", page});
  EXPECT_EQ(full.code, 7) << full.err;
  ASSERT_EQ(full.errors().size(), 1U) << full.err;
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  EXPECT_EQ(read_text(page), before);
  EXPECT_FALSE(std::filesystem::exists(page + ".partial"));
  ProgramOptions to_full_device;
  to_full_device.out = "/dev/full";
  EXPECT_EQ(run_quire({"trace", path("run"), "--document", "0", "--json"}, to_full_device).code, 7);
}

}  // namespace
}  // namespace quire::test
