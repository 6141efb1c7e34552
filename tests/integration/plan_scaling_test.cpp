// Tests quire plan --scaling as a user sees it.
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

class PlanScaling : public ::testing::Test {
 protected:
  ProgramResult plan(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"plan", tiny_.config().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  }
  nlohmann::json scaling(std::vector<std::string> more) const {
    more.insert(more.end(), {"--scaling", "--json"});
    const ProgramResult result = plan(more);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out).at("scaling");
  }
  TinyRun tiny_;
};

TEST_F(PlanScaling, IsOnlyThereWhenItIsAskedFor) {
  const ProgramResult silent = plan({"-np", "3"});
  EXPECT_EQ(silent.out.find("scaling"), std::string::npos) << silent.out;
  EXPECT_FALSE(nlohmann::json::parse(plan({"--json"}).out).contains("scaling"));
  const ProgramResult told = plan({"-n", "3", "--scaling", "--step-ms", "20"});
  ASSERT_EQ(told.code, 0) << told.err;
  EXPECT_EQ(told.out.rfind(silent.out, 0), 0U) << told.out;
  for (const char* part : {"a rank computes 20.00 ms with 1 row,", "strong scaling, 3 rows in all\n",
                           "weak scaling, 1 row a rank\n", "efficiency\n", "100.0 %\n", "0-1"}) {
    EXPECT_NE(told.out.find(part), std::string::npos) << part << "\n" << told.out;
  }
}

// 3 rows of 16 tokens, of which 3 ranks have one each, in 20 ms.
TEST_F(PlanScaling, StartsFromTheTimeThatIsGiven) {
  const nlohmann::json table = scaling({"-n", "3", "--step-ms", "20", "--fixed-ms", "5", "--ranks-per-host", "2"});
  EXPECT_EQ(table["exchange"], "pairwise");
  EXPECT_EQ(table["within_host"]["bytes_per_second"], 450e9);
  EXPECT_EQ(table["between_hosts"]["bytes_per_second"], 50e9);
  EXPECT_EQ(table["backward_share"], 2.0 / 3);
  std::vector<int64_t> ranks;
  for (const nlohmann::json& point : table["strong"]) ranks.push_back(point["ranks"]);
  EXPECT_EQ(ranks, (std::vector<int64_t>{1, 3, 8, 64, 512}));
  const nlohmann::json& one = table["strong"][0];
  EXPECT_NEAR(one["step_ms"].get<double>(), 5 + 3 * 15, 1e-9);
  EXPECT_NEAR(one["tokens_per_second"].get<double>(), 48 / 0.05, 1e-6);
  const nlohmann::json& three = table["strong"][1];
  EXPECT_EQ(three["hosts"], 2);
  EXPECT_EQ(three["most_rows"], 1);
  EXPECT_NEAR(three["compute_ms"].get<double>(), 20, 1e-9);
  EXPECT_GT(three["exchange_ms"], three["hidden_ms"]);
  EXPECT_EQ(three, [&] {
    nlohmann::json same = table["weak"][1];  // three times one row are the rows there are
    same["efficiency"] = three["efficiency"];
    return same;
  }());
  EXPECT_NEAR(table["weak"][0]["step_ms"].get<double>(), 20, 1e-9);
}

TEST_F(PlanScaling, TakesLinksAndExchanges) {
  const auto exchange_ms = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"-n", "3", "--step-ms", "20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return scaling(arguments)["strong"][1]["exchange_ms"].get<double>();
  };
  const double usual = exchange_ms({});
  EXPECT_GT(exchange_ms({"--within-host", "1Mb/s,3.4us"}), usual);
  EXPECT_EQ(exchange_ms({"--between-hosts", "1Mb/s,3.4us"}), usual);  // all are on one host
  EXPECT_GT(exchange_ms({"--between-hosts", "1Mb/s,3.4us", "--ranks-per-host", "1"}), usual);
  EXPECT_GT(exchange_ms({"--control-latency", "1ms"}), usual);
  EXPECT_EQ(scaling({"--step-ms", "20", "run.device=cuda"})["exchange"], "ring");
  EXPECT_EQ(scaling({"--step-ms", "20", "run.device=cuda", "--exchange", "pairwise"})["exchange"], "pairwise");
  EXPECT_EQ(scaling({"--step-ms", "20", "model.recompute=blocks"})["backward_share"], 0.75);
  EXPECT_EQ(scaling({"--step-ms", "20", "--backward-share", "0.5"})["backward_share"], 0.5);
}

TEST_F(PlanScaling, AProbeMeasuresTheRowsOfARank) {
  const nlohmann::json table = scaling({"-n", "2", "--probe", "run.device=cpu"});
  EXPECT_EQ(table["rows"], 2);
  EXPECT_GT(table["step_ms"], 0);
  EXPECT_GE(table["fixed_ms"], 0);
  EXPECT_LT(table["fixed_ms"], table["step_ms"]);
  EXPECT_DOUBLE_EQ(table["strong"][1]["compute_ms"].get<double>(), table["step_ms"].get<double>());
}

}  // namespace
}  // namespace quire::test
