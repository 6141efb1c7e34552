// Figures that quire compare is asked for, differences from several groups, and runs that are kept in a file.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/file_io.h"
#include "tests/support/temporary_directory.h"
#include "tests/trainers/compared_run_example.h"
#include "trainers/compare/kept_runs.h"
#include "trainers/compare/report.h"

namespace quire::test {
namespace {

// Gives every document ten bytes more from position 4 on, `bits` for each, and recalled targets.
ComparedRun longer_run(const std::string& path, const std::vector<double>& bits, int64_t right) {
  ComparedRun run = run_of(path, 1, std::vector<double>(bits.size(), 1));
  for (size_t i = 0; i < bits.size(); ++i) {
    StoredDocument& document = run.evaluation.documents[i];
    const double nll = bits[i] * 10 * std::numbers::ln2;
    document.by_position.insert(document.by_position.end(), {{1, 2, 0, 0, 0}, {2, 4, 0, 0, 0}, {4, 8, 4, 10, nll}});
    document.nll += nll;
    document.bytes += 10;
    document.tokens += 4;
    document.recalled_tokens = 8;
    document.recalled_right = right;
  }
  return run;
}

TEST(CompareMetrics, AreThoseOfPositionsAndRecalledTargets) {
  std::vector<ComparedRun> runs{longer_run("a", {2, 4}, 2), longer_run("b", {3, 4}, 6)};
  runs[1].config.data.subsequence = 7;
  ComparisonChoices choices;
  for (const char* name : {"bits_per_byte", "bits_per_byte@4", "recall.accuracy", "nats_per_token@4"}) {
    choices.metrics.push_back(parse_metric(name, "here"));
    EXPECT_EQ(choices.metrics.back().name(), name);
  }
  const Comparison comparison = compare_runs(runs, "valid", 0, choices);
  ASSERT_EQ(comparison.differences.size(), 4U);
  const double expected[] = {0.25, 0.5, 0.5, 0.5 * 10 / 4 * std::numbers::ln2};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(comparison.differences[i].metric, i);
    EXPECT_NEAR(comparison.differences[i].difference->mean, expected[i], 1e-12) << i;
  }
  EXPECT_NEAR(comparison.figures[0].of_metrics[1]->mean, 3, 1e-12);
  EXPECT_NEAR(comparison.figures[1].of_metrics[2]->mean, 0.75, 1e-12);
  for (const char* name : {"bits", "bits_per_byte@", "bits_per_byte@3", "bits_per_byte@0", "recall.accuracy@4"}) {
    EXPECT_THROW(parse_metric(name, "here"), Error) << name;
  }
  runs[1].evaluation.documents[0].recalled_tokens.reset();
  EXPECT_THROW(compare_runs(runs, "valid", 0, choices), Error);
}

TEST(CompareMetrics, GroupsAreComparedWithOthersBesideTheBaseline) {
  std::vector<ComparedRun> runs{run_of("a", 1, {1, 1}), run_of("b", 1, {2, 2}), run_of("c", 1, {4, 4})};
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].config.data.subsequence = static_cast<int64_t>(i) + 1;
    runs[i].variant = "variant, no " + std::to_string(i);
  }
  const Comparison comparison = compare_runs(runs, "valid", 0, {{}, {{2, 1}, {2, 0}}});
  ASSERT_EQ(comparison.differences.size(), 3U);
  EXPECT_NEAR(comparison.differences[1].difference->mean, 3, 1e-12);
  EXPECT_EQ(comparison.differences[2].baseline, 1U);
  EXPECT_NEAR(comparison.differences[2].difference->mean, 2, 1e-12);
  const std::string text = to_markdown(report_of(comparison, ReportNames::full));
  EXPECT_NE(text.find("| variant, no 2, beside variant, no 1 | +2.0000 | +100.0 % | - | 2 | 1 | +2.0000 |\n"),
            std::string::npos)
      << text;
}

TEST(KeptRuns, ComeBackAsTheyWere) {
  const TemporaryDirectory folder;
  std::vector<ComparedRun> runs{longer_run("x/a", {2, 1.0 / 3}, 2), run_of("b", 3, {3, 4})};
  runs[0].variant = "cache";
  runs[0].config.data.corpus = "/somewhere/corpus.h5";
  runs[0].origins.resize(1);
  runs[1].final_seconds.reset();
  runs[1].curve[0].seconds = std::nan("");
  runs[1].evaluation.trained.tokens.reset();
  for (ComparedRun& run : runs) run.evaluation.split = "valid";
  const auto file = folder / "kept.jsonl";
  write_file_durably(file, kept_text(runs));
  ASSERT_TRUE(is_kept_file(file));
  const std::vector<ComparedRun> back = read_kept_runs(file);
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(kept_text(back), kept_text(runs));
  EXPECT_EQ(back[0].path, (file / "a").string());
  EXPECT_EQ(back[0].variant, "cache");
  EXPECT_EQ(back[0].config.data.corpus, "corpus.h5");
  EXPECT_EQ(back[0].evaluation.documents, runs[0].evaluation.documents);
  EXPECT_TRUE(std::isnan(back[1].curve[0].seconds));
  // Figures are those of the runs themselves, and times that are not known leave out what needs them.
  auto figures = [](const std::vector<ComparedRun>& of) { return to_json(compare_runs(of, "valid", 0)).at("groups"); };
  EXPECT_EQ(figures(back), figures(runs));
  EXPECT_EQ(compare_runs(back, "valid", 0).equal_time.without, back[1].path + " was kept without its training time");

  const std::string good = kept_text(runs);
  std::string old = good;
  old.replace(old.find("\"version\":1"), 11, "\"version\":9");
  for (const std::string& text : {std::string("mine\n"), std::string(), good.substr(0, good.size() / 2), old}) {
    write_file_durably(file, text);
    EXPECT_THROW(read_kept_runs(file), Error) << text;
  }
}

TEST(KeptRuns, HaveTheSettingsOfNow) {
  ComparedRun run = run_of("kept/a-1", 1, {1});
  run.config.data.corpus = "corpus.h5";
  run.origins.push_back(run.config);
  run.config.init.from = "base-1";
  RunConfig now = run.config;
  now.data.corpus = "/elsewhere/corpus.h5";
  now.init.from = "/elsewhere/base-1";
  now.log.every = 3;  // changes no result
  std::vector<RunConfig> origins = run.origins;
  EXPECT_NO_THROW(require_same_results(run, now, origins));
  const auto refused = [&] {
    try {
      require_same_results(run, now, origins);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  origins[0].model.width = 7;
  EXPECT_NE(refused().find("kept/a-1: was trained with other settings than those of now: init.from: model.width is "),
            std::string::npos)
      << refused();
  origins = run.origins;
  origins[0].data.corpus = "other.h5";
  EXPECT_NE(refused().find("init.from: data.corpus is corpus.h5 there and other.h5 now"), std::string::npos);
  origins.clear();
  EXPECT_NE(refused(), "");
}

}  // namespace
}  // namespace quire::test
