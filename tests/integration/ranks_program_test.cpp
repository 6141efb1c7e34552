// Tests the program on several ranks (tests/support/program_with_ranks.cpp): its results are those of one rank, and
// every message appears once.
#include <fmt/format.h>

#include "tests/faults/expect_fault.h"
#include "tests/support/on_ranks.h"

namespace quire::test {
namespace {

constexpr int kMaxRanks = 4;

// Returns the output of a verb with --json, without times and memory.
nlohmann::json json_of(const ProgramResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  nlohmann::json json = nlohmann::json::parse(result.out);
  json.erase("seconds");
  json.erase("resident_bytes");
  return json;
}

class RanksProgram : public ::testing::Test {
 protected:
  std::string run() const { return (tiny_ / "run").string(); }
  void train(std::vector<std::string> settings = {}) const {
    settings.emplace_back("schedule.steps=4");
    const ProgramResult trained = on_ranks(1, tiny_.train_arguments("run", settings));
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  // The arguments give the same JSON on every number of ranks.
  void expect_one_result(const std::vector<std::string>& arguments) const {
    const nlohmann::json one = json_of(on_ranks(1, arguments));
    for (int size = 2; size <= kMaxRanks; ++size) EXPECT_EQ(json_of(on_ranks(size, arguments)), one) << size;
  }
  const TinyRun tiny_;
};

struct Kind {
  std::string name;
  std::vector<std::string> settings;
};

class RanksProgramKinds : public RanksProgram, public ::testing::WithParamInterface<Kind> {};

// Split valid has two documents, so that ranks have none; data.rows are three. Bit for bit: a row's losses do not
// depend on the rows beside it, and sums are exact.
TEST_P(RanksProgramKinds, EvaluationIsThatOfOneRank) {
  train(GetParam().settings);
  for (const char* split : {"train", "valid"}) {
    expect_one_result({"eval", run(), "--split", split, "--documents", "--by-position", "--json"});
  }
  expect_one_result({"eval", run(), "--split", "train", "evaluate.rows=5", "data.score_first_token=false", "--json"});
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RanksProgramKinds,
    ::testing::Values(Kind{"cache", {}},
                      Kind{"knn", {"model.memory=[{kind: knn, layers: [-1], carry: {length: 24}, top_k: 4}]"}},
                      Kind{"inserted",
                           {"model.position.kind=rope",
                            "model.attention={kind: landmark, landmark: {block: 5, top_k: 2, carry: {length: 20}}}"}}),
    [](const auto& test) { return test.param.name; });

TEST_F(RanksProgram, RecallIsThatOfOneRank) {
  const std::string corpus = (tiny_ / "recall.h5").string();
  ASSERT_EQ(run_quire({"prepare", "--task", "recall", "--set", "length=1500", "--split", "train=4", "--split",
                       "valid=5", "--output", corpus})
                .code,
            0);
  train({"data.corpus=" + corpus});
  const std::vector<std::string> arguments{"eval", run(), "--documents", "--json"};
  expect_one_result(arguments);
  EXPECT_GT(json_of(on_ranks(3, arguments))["recall"]["tokens"], 0);
  EXPECT_GT(json_of(on_ranks(3, arguments))["recall"]["chance"], 0.1);

  // The losses of single targets, too, bit for bit.
  std::vector<std::string> losses;
  for (const int size : {1, 3}) {
    const std::string path = (tiny_ / fmt::format("{}.h5", size)).string();
    EXPECT_EQ(on_ranks(size, {"eval", run(), "--losses", path}).code, 0);
    losses.push_back(read_text(path));
    EXPECT_FAULT(on_ranks(size, {"eval", run(), "--losses", path}), 2,
                 "quire: error: --losses " + path + ": exists already; remove it or give another name");
    EXPECT_EQ(read_text(path), losses.back());
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_FAULT(on_ranks(3, {"eval", run(), "--losses", "/no/such/folder/a.h5"}), 7,
               "quire: error: --losses /no/such/folder/a.h5: there is no folder");
}

TEST_F(RanksProgram, NeedlesAreThoseOfOneRank) {
  train();
  const std::vector<std::string> arguments{"needle",    run(), "--lengths", "128,300", "--depths", "0,1",
                                           "--samples", "3",   "--set",     "key=1",   "--json"};
  expect_one_result(arguments);
  std::vector<std::string> picture;
  for (const int size : {1, 3}) {
    const std::string svg = (tiny_ / fmt::format("{}.svg", size)).string();
    std::vector<std::string> drawing = arguments;
    drawing.back() = "--svg";
    drawing.push_back(svg);
    const ProgramResult result = on_ranks(size, drawing);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 9) << result.out;
    picture.push_back(read_text(svg));
  }
  EXPECT_EQ(picture[0], picture[1]);
  EXPECT_FAULT(on_ranks(3, {"needle", run(), "--lengths", "128", "--svg", "/no/such/folder/a.svg"}), 7,
               "quire: error: --svg /no/such/folder/a.svg: there is no folder");
}

TEST_F(RanksProgram, TextIsMadeAndPrintedOnce) {
  train();
  const std::vector<std::string> arguments{"generate", run(), "--prompt", "abc", "--echo",
                                           "--length", "30",  "--seed",   "5"};
  const std::string one = on_ranks(1, arguments).out;
  EXPECT_EQ(one.rfind("abc", 0), 0U);
  EXPECT_EQ(on_ranks(3, arguments).out, one);
  EXPECT_FAULT(on_ranks(3, {"generate", run(), "--length", "many"}), 2, "expects a whole number");
  EXPECT_FAULT(on_ranks(3, {"generate", (tiny_ / "nothing").string()}), 4, "no such folder");
  ProgramOptions full{.folder = {}, .environment = {{"QUIRE_TEST_RANKS", "3"}}, .out = "/dev/full", .program = {}};
  full.program = "quire_with_ranks";
  const ProgramResult unwritten = run_quire(arguments, full);
  EXPECT_EQ(unwritten.code, 7);
  ASSERT_EQ(unwritten.errors().size(), 1U) << unwritten.err;
}

TEST_F(RanksProgram, WhatIsForOneRankIsDoneByOne) {
  EXPECT_EQ(on_ranks(3, {"--version"}).out, on_ranks(1, {"--version"}).out);
  EXPECT_EQ(on_ranks(3, {"eval", "--help"}).out, on_ranks(1, {"eval", "--help"}).out);
  EXPECT_EQ(on_ranks(3, {"config", tiny_.config().string()}).out, run_quire({"config", tiny_.config().string()}).out);
  EXPECT_EQ(on_ranks(3, {"config", tiny_.config().string()}).code, 0);
  const std::string corpus = (tiny_ / "task.h5").string();
  const std::vector<std::string> prepare{"prepare", "--task",  "recall",   "--set", "length=600",
                                         "--split", "train=4", "--output", corpus};
  EXPECT_EQ(on_ranks(3, prepare).code, 0);
  EXPECT_FAULT(on_ranks(3, prepare), 2, "exists already; use --force to replace it");
}

TEST_F(RanksProgram, ErrorsAreSaidOnceWithTheirCode) {
  EXPECT_FAULT(on_ranks(3, {"evil"}), 2, "'evil' is no verb of quire; did you mean eval?");
  EXPECT_FAULT(on_ranks(3, {"eval", (tiny_ / "nothing").string()}), 4, "nothing: no such folder");
  train();
  EXPECT_FAULT(on_ranks(3, {"eval", run(), "model.heats=1"}), 2, "unknown key");
  EXPECT_FAULT(on_ranks(3, {"eval", run(), "--split", "none"}), 2, "no split \"none\"");
  EXPECT_FAULT(on_ranks(3, {"needle", run(), "--lengths", "50"}), 2, "length 50 is too short");
  // Read by one rank of each host.
  std::string corpus = read_text(tiny_.corpus());
  corpus[corpus.size() / 2] ^= 4;
  write_text(tiny_.corpus(), corpus);
  for (const char* hosts : {"a,b,a,b", "a,a,a,a"}) {
    const ProgramResult damaged = on_ranks(4, {"eval", run()}, hosts);
    EXPECT_FAULT(damaged, 3, "corpus.h5: checksum");
    EXPECT_EQ(damaged.err.find("rank"), std::string::npos) << damaged.err;  // it is no matter of one rank
  }
}

TEST_F(RanksProgram, LossesThatAreNotFiniteAreTheErrorOfAll) {
  train({"schedule.warmup=0", "optimizer.lr=1e30", "run.on_nonfinite={policy: skip}"});
  for (const int size : {1, 3}) {
    const ProgramResult result = on_ranks(size, {"eval", run()});
    EXPECT_EQ(result.code, 5);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.errors(), std::vector<std::string>{"quire: error: evaluate: the loss on split valid is not "
                                                        "finite; the weights of this checkpoint overflow"});
  }
}

}  // namespace
}  // namespace quire::test
