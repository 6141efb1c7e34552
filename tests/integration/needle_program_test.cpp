// Tests quire needle on a small model.
#include <regex>

#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

class NeedleProgram : public ::testing::Test {
 protected:
  NeedleProgram() { EXPECT_EQ(tiny_.train("run", {"schedule.steps=2", "data.subsequence=64"}).code, 0); }
  ProgramResult needle(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"needle", (tiny_ / "run").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  }
  TinyRun tiny_;
};

TEST_F(NeedleProgram, PrintsATableJsonAndAPicture) {
  const std::string svg = (tiny_ / "n.svg").string();
  const ProgramResult text = needle({"--lengths", "256,1k", "--depths", "0,1", "--samples", "2", "--svg", svg});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char* part : {"task single, 2 samples a cell", "whole answer", "one token", "depth 100 %", "1k"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
  }
  EXPECT_NE(read_text(svg).find("<svg"), std::string::npos);

  const ProgramResult json =
      needle({"--lengths", "300", "--task", "hops:2", "--samples", "1", "--set", "key=3", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto object = nlohmann::json::parse(json.out);
  EXPECT_EQ(object["cells"].size(), 1U);
  EXPECT_TRUE(object["cells"][0]["depth"].is_null());
  EXPECT_EQ(object["cells"][0]["length"], 300);
  EXPECT_EQ(object["key"], 3);
  // The same command gives the same numbers.
  auto again = nlohmann::json::parse(
      needle({"--lengths", "300", "--task", "hops:2", "--samples", "1", "--set", "key=3", "--json"}).out);
  EXPECT_EQ(again["cells"], object["cells"]);
}

TEST_F(NeedleProgram, QuestionsHaveOneTableWithIntervals) {
  const std::vector<std::string> asked{"--lengths", "640,1k", "--task", "niah_single_2,babi_1", "--samples", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), asked.begin(), asked.end());
    return needle(more);
  };
  const std::string book = (tiny_ / "book.txt").string();
  write_text(book, "It was the best of times. It was the worst of times.\n");
  const ProgramResult text = with({"--filler", book, "--svg", (tiny_ / "q.svg").string()});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(std::regex_search(text.out, std::regex("niah_single_2 +640 +[0-9.]+ +[0-9.]+-[0-9.]+ "))) << text.out;
  EXPECT_TRUE(std::regex_search(text.out, std::regex("babi_1 +1k +[0-9.]+ +[0-9.]+-[0-9.]+ "))) << text.out;
  const ProgramResult markdown = with({"--markdown"});
  EXPECT_NE(markdown.out.find("| task | length | score | 95 % | whole | 95 % | tokens |"), std::string::npos)
      << markdown.out;
  const auto json = nlohmann::json::parse(with({"--json"}).out);
  ASSERT_EQ(json["cells"].size(), 4U);
  EXPECT_EQ(json["cells"][3]["task"], "babi_1");
  EXPECT_EQ(json["cells"][3]["scores"].size(), 2U);
  EXPECT_EQ(json["cells"][3]["score_interval"].size(), 2U);
  EXPECT_FALSE(json.contains("key"));
  EXPECT_NE(needle({"--lengths", "256", "--samples", "1", "--markdown"}).out.find("| depth | length | whole |"),
            std::string::npos);
}

// A document sixty-four times as long takes no more memory: with its logits it would be 64 MiB more.
TEST_F(NeedleProgram, MemoryDoesNotGrowWithTheLength) {
  const auto resident = [&](const std::string& length) {
    const ProgramResult result =
        needle({"--lengths", length, "--depths", "0.5", "--samples", "1", "--set", "alphabet=letters", "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out)["resident_bytes"].get<int64_t>();
  };
  EXPECT_LT(resident("64k") - resident("1k"), int64_t{6} << 20);
}

TEST_F(NeedleProgram, WhatMeansNothingIsRefused) {
  EXPECT_FAULT(needle({"--lengths", "50"}), 2,
               "needle: length 50 is too short for task passkey, which needs at least 64");
  EXPECT_FAULT(needle({"--lengths", "1x"}), 2, "--lengths 1x: \"1x\" is no length");
  EXPECT_FAULT(needle({"--lengths", "1k", "--depths", "2"}), 2, "--depths 2: \"2\" is no depth");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "hops:2", "--depths", "1"}), 2,
               "--depths has no meaning with hops");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "vt", "--depths", "1"}), 2, "--depths has no meaning with vt");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "vt,single"}), 2, "give single alone");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "vt,vt"}), 2, "vt is given twice");
  EXPECT_FAULT(needle({"--lengths", "1k,300", "--task", "babi_1,vt"}), 2, "length 300 is too short for task babi_1");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "babi_1", "--set", "key=3"}), 2, "what was published");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "babi_1", "--json", "--markdown"}), 2, "does not go with --json");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "babi_1", "--filler", (tiny_ / "x.txt").string()}), 3, "x.txt");
  write_text(tiny_ / "latin.txt", "A caf\xe9.\n");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "babi_1", "--filler", (tiny_ / "latin.txt").string()}), 3,
               "latin.txt: invalid UTF-8 at byte 5; repair the file");
  write_text(tiny_ / "blank.txt", " \n\t\n");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "babi_1", "--filler", (tiny_ / "blank.txt").string()}), 3,
               "blank.txt: has no words");
  write_text(tiny_ / "words.txt", "Some words.\n");
  const std::string words = (tiny_ / "words.txt").string();
  EXPECT_FAULT(needle({"--lengths", "2k", "--task", "niah_single_1,vt,cwe", "--filler", words}), 2,
               "--filler has no meaning with niah_single_1,vt,cwe, which has text of its own");
  EXPECT_EQ(needle({"--lengths", "1k", "--samples", "1", "--task", "vt,babi_1", "--filler", words}).code, 0);
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "recall"}), 2, "--task recall has no needles");
  EXPECT_FAULT(needle({"--lengths", "1k", "--svg", "/no/such/folder/a.svg"}), 7, "there is no folder /no/such/folder");
  EXPECT_FAULT(needle({"--lengths", "1k", "--task", "triple"}), 2, "\"triple\" is no task");
  EXPECT_FAULT(needle({"--lengths", "1k", "--set", "length=3"}), 2, "--set length=3 has no meaning here");
  EXPECT_FAULT(needle({"--lengths", "1000", "--align", "64"}), 2, "not a multiple of the alignment 64");
  // Lengths are rounded down to whole blocks: the message names the one that was given, too.
  ASSERT_EQ(tiny_
                .train("blocks", {"schedule.steps=2", "model.position.kind=rope",
                                  "model.attention={kind: landmark, landmark: {block: 6}}"})
                .code,
            0);
  EXPECT_FAULT(run_quire({"needle", (tiny_ / "blocks").string(), "--lengths", "64"}), 2,
               "needle: 64 rounded down to a multiple of 6: length 60 is too short for task passkey");
  EXPECT_FAULT(needle({"--lengths", "1k", "--filler", (tiny_ / "x.h5").string()}), 3, "x.h5: no such corpus");
  EXPECT_FAULT(needle({"--lengths", "1k", "data.rows=5"}), 2, "data.rows: cannot differ from the training run");
  EXPECT_FAULT(needle({"--lengths", "1k", "--samples", "0"}), 2, "--help");
  EXPECT_FAULT(needle({}), 2, "--lengths is required");
}

}  // namespace
}  // namespace quire::test
