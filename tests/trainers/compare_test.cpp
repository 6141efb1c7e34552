// Statistics and grouping of quire compare against values by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/files/file_io.h"
#include "core/random.h"
#include "tests/support/temporary_directory.h"
#include "tests/trainers/compared_run_example.h"
#include "trainers/compare/report.h"
#include "trainers/run/training_clock.h"

namespace quire::test {
namespace {

TEST(PairedDifference, IsTheMeanOverDocumentsOfTheMeanOverSeeds) {
  const PairedDifference difference = paired_difference({{1, 2, 4}, {2, 2, 1}}, {{1, 1, 1}, {2, 3, 4}}, true);
  // Documents: (0 + 0) / 2, (1 - 1) / 2, (3 - 3) / 2; seeds: 4 / 3 and -4 / 3.
  EXPECT_NEAR(difference.mean, 0, 1e-15);
  ASSERT_EQ(difference.by_seed.size(), 2U);
  EXPECT_NEAR(difference.by_seed[0], 4.0 / 3, 1e-15);
  EXPECT_NEAR(difference.by_seed[1], -4.0 / 3, 1e-15);
  EXPECT_FALSE(difference.interval);  // three documents
  // Seeds of their own: means over two and one.
  const PairedDifference unpaired = paired_difference({{1, 2}, {3, 4}}, {{2, 2}}, false);
  EXPECT_NEAR(unpaired.mean, 0.5, 1e-15);
  EXPECT_NEAR(*unpaired.percent, 25, 1e-12);
  EXPECT_TRUE(unpaired.by_seed.empty());
}

TEST(PairedDifference, HasAnIntervalFromSixDocumentsOn) {
  const std::vector<double> five(5, 1.0), six(6, 1.0), zeros(6, 0.0);
  EXPECT_FALSE(paired_difference({five}, {std::vector<double>(5, 0.0)}, true).interval);
  const PairedDifference constant = paired_difference({six}, {zeros}, true);
  ASSERT_TRUE(constant.interval);
  EXPECT_EQ(constant.interval->low, 1);
  EXPECT_EQ(constant.interval->high, 1);
  EXPECT_FALSE(constant.percent);  // of nothing
}

// With one document in six that differs, a resample's mean is k / 6, k binomial (6, 1/6): P(k = 0) = 0.335 and
// P(k <= 2) = 0.938, P(k <= 3) = 0.991; percentiles 2.5 and 97.5 are those of k = 0 and k = 3.
TEST(PairedDifference, TheIntervalResamplesDocuments) {
  const PairedDifference one = paired_difference({{6, 0, 0, 0, 0, 0}}, {{0, 0, 0, 0, 0, 0}}, true);
  EXPECT_EQ(one.interval->low, 0);
  EXPECT_EQ(one.interval->high, 3);
}

// Documents that agree leave the seeds: with differences 0 and 1 of two seeds the mean is 0, 1/2 or 1, with shares of
// 1/4, 1/2 and 1/4. Without pairs the seeds of the baseline are drawn by themselves.
TEST(PairedDifference, TheIntervalResamplesSeeds) {
  const std::vector<double> zeros(6, 0.0), ones(6, 1.0), fives(6, 5.0);
  const PairedDifference paired = paired_difference({zeros, ones}, {zeros, zeros}, true);
  EXPECT_EQ(paired.interval->low, 0);
  EXPECT_EQ(paired.interval->high, 1);
  // Pairs keep the seeds' common part out.
  EXPECT_EQ(paired_difference({zeros, fives}, {zeros, fives}, true).interval->high, 0);
  EXPECT_EQ(paired_difference({zeros, fives}, {zeros, fives}, false).interval->high, 5);
  EXPECT_EQ(paired_difference({zeros, fives}, {zeros, fives}, false).interval->low, -5);
}

TEST(PairedDifference, SpreadsAreOverSeeds) {
  EXPECT_FALSE(spread_of({}));
  EXPECT_FALSE(spread_of({3})->deviation);
  const auto spread = spread_of({1, 2, 4});
  EXPECT_NEAR(spread->mean, 7.0 / 3, 1e-15);
  EXPECT_NEAR(*spread->deviation, std::sqrt(7.0 / 3), 1e-15);  // ((16 + 1 + 25) / 9) / 2
}

TEST(TrainingClock, AddsUpStepsAndGoesBetweenThem) {
  MetricColumns metrics;
  metrics.steps = {10, 20};
  metrics.fields = {{"tokens", {100, 220}}, {"step_ms", {500, 300}}};
  const TrainingClock clock(metrics);
  EXPECT_EQ(clock.last_step(), 20);
  EXPECT_EQ(clock.at(10)->seconds, 5);
  EXPECT_EQ(clock.at(15)->seconds, 6.5);
  EXPECT_EQ(clock.at(15)->tokens, 160);
  EXPECT_EQ(clock.at(5)->tokens, 50);
  EXPECT_EQ(clock.at(20)->seconds, 8);
  EXPECT_EQ(clock.at(30)->seconds, 11);
  EXPECT_FALSE(TrainingClock(MetricColumns()).at(3));
}

TEST(Compare, GroupsRunsThatDifferInTheSeedAlone) {
  std::vector<ComparedRun> runs{run_of("runs/xl-1", 1, {1}), run_of("runs/window-1", 1, {1}),
                                run_of("runs/xl-2", 2, {1})};
  runs[1].config.data.subsequence = 7;
  runs[2].config.run.threads = 3;  // no part of a result
  runs[2].config.checkpoint.every = 3;
  std::vector<RunGroup> groups = group_runs(runs);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].runs, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(groups[0].name, "xl");  // run.name is the same of all
  EXPECT_EQ(groups[1].name, "window-1");
  EXPECT_EQ(groups[1].letter, "B");
  const std::vector<DifferingKey> keys = differing_keys(runs, groups);
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys[0].key, "data.subsequence");
  EXPECT_EQ(keys[0].values, (std::vector<std::string>{"512", "7"}));
  runs[1].config.run.name = "w";
  runs[0].config.run.name = runs[2].config.run.name = "x";
  groups = group_runs(runs);
  EXPECT_EQ(groups[0].name, "x");
  runs[0].config.run.name = "y";
  for (const auto& [first, second] : {std::pair("xl-seed10", "xl-seed11"), std::pair("xl_1", "xl_12")}) {
    runs[0].path = first;
    runs[2].path = second;
    EXPECT_EQ(group_runs(runs)[0].name, "xl");
  }
  runs[2].evaluation.corpus = "another";
  EXPECT_EQ(group_runs(runs).size(), 3U);
}

TEST(Compare, PairsDocumentsAndSeedsAndSaysWhatItCannot) {
  std::vector<ComparedRun> runs{run_of("a1", 1, {1, 2}), run_of("a2", 2, {1, 4}), run_of("b2", 2, {3, 5})};
  runs[2].config.data.subsequence = 7;
  const Comparison comparison = compare_runs(runs, "valid", 0);
  ASSERT_EQ(comparison.differences.size(), 1U);
  const GroupDifference& of = comparison.differences[0];
  EXPECT_EQ(of.seeds, (std::vector<int64_t>{2}));
  EXPECT_EQ(of.documents, 2);
  EXPECT_NEAR(of.difference->mean, 1.5, 1e-12);  // (2 + 1) / 2, of seed 2 alone
  EXPECT_NEAR(*of.difference->percent, 60, 1e-10);
  EXPECT_EQ(of.without_interval, "2 documents, and an interval needs 6");
  EXPECT_NEAR(comparison.figures[0].bits_per_byte->mean, 2.0, 1e-12);
  ASSERT_EQ(comparison.warnings.size(), 1U);
  EXPECT_EQ(comparison.warnings[0], "B b2: the difference uses the seeds that A a has, too, alone: 2");
  ASSERT_EQ(comparison.positions.size(), 1U);
  EXPECT_NEAR(comparison.positions[0].groups[1]->mean, 4, 1e-12);
  // The baseline may be another run.
  EXPECT_NEAR(compare_runs(runs, "valid", 2).differences[0].difference->mean, -1.5, 1e-12);
  // Other documents count where all have read them.
  runs[2].evaluation.documents[0].bytes = 9;
  EXPECT_EQ(compare_runs(runs, "valid", 0).differences[0].documents, 1);
  runs[2].evaluation.corpus = "other";
  EXPECT_EQ(compare_runs(runs, "valid", 0).differences[0].without_difference, "the corpora differ");
}

TEST(Compare, WarnsOfWhatIsUnequal) {
  std::vector<ComparedRun> runs{run_of("a", 1, {1, 2}), run_of("b", 3, {1, 2})};
  runs[1].config.data.subsequence = 7;
  runs[1].evaluation.corpus = "d";
  runs[1].evaluation.tokenizer = "spm:2";
  runs[1].evaluation.trained = {90, 900, 9.0};
  runs[1].evaluation.as_trained = false;
  const Comparison comparison = compare_runs(runs, "valid", 0);
  std::string all;
  for (const std::string& warning : comparison.warnings) all += warning + "\n";
  for (const char* part :
       {"the corpora differ", "the tokenizers differ", "tokens trained on differ: from 900 (b) to 1000 (a)",
        "b: the evaluation is that of step 90, and there is a checkpoint of step 100", "something else than training",
        "seeds are not paired where a group has none of the seeds of A a: B b"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " in " << all;
  }
  // The same text behind another tokenizer is paired in bits per byte.
  EXPECT_TRUE(comparison.differences[0].difference.has_value());
  runs[1].evaluation.has_text = false;
  EXPECT_FALSE(compare_runs(runs, "valid", 0).differences[0].difference.has_value());
}

TEST(Compare, EqualTimeIsThatOfTheGroupThatUsedLess) {
  std::vector<ComparedRun> runs{run_of("a", 1, {1, 2}), run_of("b", 1, {1, 2})};
  runs[1].config.data.subsequence = 7;
  runs[1].final_seconds = 20;
  for (CurvePoint& point : runs[1].curve) point.seconds *= 2;
  const Comparison comparison = compare_runs(runs, "valid", 0);
  EXPECT_EQ(comparison.equal_time.budget, 10);
  EXPECT_EQ(comparison.equal_time.groups[0].figure->mean, 2);
  EXPECT_EQ(comparison.equal_time.groups[1].figure->mean, 4);
  EXPECT_EQ(comparison.equal_time.groups[1].steps, std::vector<double>{50});
  EXPECT_EQ(comparison.equal_tokens.groups[1].figure->mean, 2);
  runs[0].final_seconds = 7.5;
  EXPECT_EQ(compare_runs(runs, "valid", 0).equal_time.groups[0].figure->mean, 3);  // between two evaluations
  runs[0].final_seconds = 3;
  EXPECT_FALSE(compare_runs(runs, "valid", 0).equal_time.groups[0].figure);
  runs[0].curve.clear();
  EXPECT_EQ(compare_runs(runs, "valid", 0).equal_time.without, "a has not evaluated split valid while training");
}

TEST(Compare, SeedsAloneHaveNothingToBeComparedWith) {
  const std::string text =
      to_text(report_of(compare_runs({run_of("a1", 1, {1, 2}), run_of("a2", 2, {1, 4})}, "valid", 0)));
  EXPECT_TRUE(text.starts_with("2 runs of one configuration, split valid\n")) << text;
  EXPECT_NE(text.find("2.0000 ± 0.7071"), std::string::npos) << text;
  for (const char* part : {"Difference", "equal", "differs"}) EXPECT_EQ(text.find(part), std::string::npos) << text;
}

TEST(Compare, TextFitsEightyColumnsAndPagesEscape) {
  std::vector<ComparedRun> runs;
  for (int64_t i = 0; i < 9; ++i) {
    runs.push_back(run_of("a/long/folder/of/runs/that/goes/on/and/on/<b>&\"" + std::to_string(i), 1, {1, 2}));
    runs.back().config.data.subsequence = i + 1;
  }
  const Report report = report_of(compare_runs(runs, "valid", 0));
  std::istringstream lines(to_text(report));
  for (std::string line; std::getline(lines, line);) {
    const auto continued = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
    EXPECT_LE(line.size() - static_cast<size_t>(std::count_if(line.begin(), line.end(), continued)), 80U) << line;
  }
  const std::string html = to_html(report);
  EXPECT_TRUE(html.starts_with(kReportMark));
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_NE(html.find("&lt;b&gt;&amp;&quot;0"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos);
}

TEST(StoredEvaluation, ComesBackAsItWas) {
  const TemporaryDirectory folder;
  std::filesystem::create_directory(folder / "run");
  StoredEvaluation stored = run_of("a", 1, {1, 1.0 / 3}).evaluation;
  stored.split = "a/b";
  stored.settings = {{"subsequence", 3}};
  store_run_evaluation(folder / "run", stored);
  const auto path = evaluation_file(folder / "run", "a/b", WhichEvaluation::latest);
  EXPECT_EQ(path.filename(), "a%2Fb.latest.json");
  const StoredEvaluation back = read_stored_evaluation(path);
  EXPECT_EQ(back.documents, stored.documents);
  EXPECT_EQ(back.trained, stored.trained);
  EXPECT_EQ(to_text(back), to_text(stored));
  EXPECT_FALSE(read_run_evaluation(folder / "run", "c", WhichEvaluation::latest));
}

TEST(StoredEvaluation, TheLatestAndTheBestAreKept) {
  const TemporaryDirectory folder;
  const auto step_of = [&](WhichEvaluation which) {
    return read_run_evaluation(folder / "", "valid", which)->trained.step;
  };
  const auto store = [&](int64_t step, double bits) {
    StoredEvaluation stored = run_of("a", 1, {bits}).evaluation;
    stored.split = "valid";
    stored.trained.step = step;
    store_run_evaluation(folder / "", stored);
  };
  store(10, 2.0);
  store(20, 1.0);
  store(30, 1.5);
  EXPECT_EQ(step_of(WhichEvaluation::latest), 30);
  EXPECT_EQ(step_of(WhichEvaluation::best), 20);
  store(15, 0.5);  // of an older checkpoint
  EXPECT_EQ(step_of(WhichEvaluation::latest), 30);
  EXPECT_EQ(step_of(WhichEvaluation::best), 15);
  remove_run_evaluations_after(folder / "", 20);
  EXPECT_FALSE(read_run_evaluation(folder / "", "valid", WhichEvaluation::latest));
  EXPECT_EQ(step_of(WhichEvaluation::best), 15);
}

TEST(StoredEvaluation, OtherFilesAreRefusedAndStay) {
  const TemporaryDirectory folder;
  StoredEvaluation stored = run_of("a", 1, {1}).evaluation;
  stored.split = "valid";
  const auto path = evaluation_file(folder / "", "valid", WhichEvaluation::latest);
  std::filesystem::create_directories(path.parent_path());
  const std::string good = to_text(stored);
  std::string old = good;
  old.replace(old.find("\"version\":1"), 11, "\"version\":9");
  const std::string torn = good.substr(0, good.size() / 2);
  for (const std::string& text : {std::string("mine"), std::string(), torn, old}) {
    write_file_durably(path, text);
    EXPECT_THROW(read_run_evaluation(folder / "", "valid", WhichEvaluation::latest), Error) << text;
    EXPECT_THROW(store_run_evaluation(folder / "", stored), Error);
    EXPECT_EQ(read_text_file(path), text);
  }
}

}  // namespace
}  // namespace quire::test
