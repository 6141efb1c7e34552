// Parts of quire report: columns of metrics, reduced curves, meanings of fields, and what is escaped on the page.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "core/error.h"
#include "tests/support/temporary_directory.h"
#include "trainers/report/field_help.h"
#include "trainers/report/page.h"
#include "trainers/report/page_files.h"
#include "trainers/run/metric_columns.h"

namespace quire {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

MetricColumns columns_of(const std::string& text) {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "metrics.jsonl", std::ios::binary) << text;
  return read_metric_columns(folder / "metrics.jsonl");
}

// Numbers with NaN as null, so that they can be compared.
nlohmann::json shown(const std::vector<double>& values) {
  return nlohmann::json::parse(nlohmann::json(values).dump());
}

TEST(MetricColumns, HaveTheNumbersOfEveryForm) {
  const MetricColumns columns = columns_of(
      "{\"step\":1,\"loss\":2.5,\"lr\":1e-3,\"telemetry\":{\"a.0\":1,\"b\":-2.5e-1}}\n"
      "{\"step\":2,\"loss\":null,\"grad_norm\":3,\"telemetry\":{\"b\":7}}\n"
      "{\"step\":2,\"evaluation\":{\"split\":\"valid\",\"nll\":5}}\n"
      " { \"step\" : 3 , \"name\" : \"x\" , \"lr\" : 4 , \"telemetry\" : { \"a.\\u0030\" : 9 , \"list\" : [1] } }\n"
      "{\"step\":3,\"loss\":100}\n"  // goes back
      "{\"other\":1}\n"
      "{\"step\":4,\"lo");
  EXPECT_EQ(columns.steps, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(shown(*columns.field("loss")), shown({2.5, kMissing, kMissing}));
  EXPECT_EQ(shown(*columns.field("lr")), shown({1e-3, kMissing, 4}));
  EXPECT_EQ(shown(*columns.field("grad_norm")), shown({kMissing, 3, kMissing}));
  EXPECT_EQ(columns.field("name"), nullptr);
  ASSERT_EQ(columns.telemetry.size(), 2U);
  EXPECT_EQ(columns.telemetry[0].name, "a.0");
  EXPECT_EQ(shown(columns.telemetry[0].values), shown({1, kMissing, 9}));
  EXPECT_EQ(shown(columns.telemetry[1].values), shown({-0.25, 7, kMissing}));
  ASSERT_EQ(columns.evaluations.size(), 1U);
  EXPECT_EQ(columns.evaluations[0].at("evaluation").at("nll"), 5);
}

TEST(MetricColumns, AreThoseThatAParserReads) {
  std::string text;
  for (int step = 1; step <= 50; ++step) {
    nlohmann::ordered_json line{{"step", step}, {"loss", std::exp(1.0 / step)}, {"lr", 1e-3 / step}};
    for (int head = 0; head < step % 3; ++head)
      line["telemetry"]["gate." + std::to_string(head)] = std::sin(step + head);
    text += line.dump() + "\n";
  }
  const MetricColumns fast = columns_of(text);
  size_t at = 0;
  // A space makes the parser read a line.
  while ((at = text.find('{', at)) != std::string::npos) text.insert(++at, " ");
  const MetricColumns slow = columns_of(text);
  EXPECT_EQ(fast.steps, slow.steps);
  ASSERT_EQ(fast.fields.size(), slow.fields.size());
  for (size_t i = 0; i < fast.fields.size(); ++i) EXPECT_EQ(fast.fields[i].values, slow.fields[i].values);
  ASSERT_EQ(fast.telemetry.size(), 2U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(shown(fast.telemetry[i].values), shown(slow.telemetry[i].values));
}

TEST(MetricColumns, DamageIsAnErrorWithItsLine) {
  for (const char* line : {"rubbish", "[1]", "{\"step\":2", "{\"step\":2,}", "{\"step\":2}}", "{\"step\":-}"}) {
    try {
      columns_of("{\"step\":1}\n" + std::string(line) + "\n{\"step\":3}\n");
      FAIL() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find("metrics.jsonl:2: not a JSON object"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_TRUE(read_metric_columns("/no/such/metrics.jsonl").steps.empty());
}

TEST(Curves, BucketsHaveEveryRowOnce) {
  for (const size_t rows : {0U, 1U, 39U, 40U, 41U, 1000U, 100000U}) {
    const Buckets buckets = buckets_of(rows, 40);
    EXPECT_LE(buckets.ends.size(), 40U);
    EXPECT_GE(buckets.ends.size(), std::min<size_t>(rows, 30)) << rows;
    for (size_t i = 1; i < buckets.ends.size(); ++i) EXPECT_GT(buckets.ends[i], buckets.ends[i - 1]);
    EXPECT_EQ(buckets.ends.empty() ? 0 : buckets.ends.back(), rows);
  }
  // The beginning is finer: five of forty buckets end within the first hundredth.
  const Buckets buckets = buckets_of(100000, 40);
  EXPECT_LE(buckets.ends[4], 1000U);
}

TEST(Curves, PeaksSurvive) {
  std::vector<double> values(100000, 1.0);
  values[54321] = 9;
  values[77777] = -4;
  values[3] = kMissing;
  for (size_t i = 90000; i < 95000; ++i) values[i] = kMissing;
  const Buckets buckets = buckets_of(values.size(), 300);
  const ReducedCurve curve = reduced_curve(values, buckets);
  ASSERT_EQ(curve.mean.size(), buckets.ends.size());
  EXPECT_EQ(*std::max_element(curve.high.begin(), curve.high.end(),
                              [](double a, double b) { return b > a || (std::isnan(a) && !std::isnan(b)); }),
            9);
  EXPECT_EQ(std::count(curve.low.begin(), curve.low.end(), -4), 1);
  EXPECT_TRUE(std::isnan(curve.mean[3]));  // the only row of its bucket
  EXPECT_GT(std::count_if(curve.mean.begin(), curve.mean.end(), [](double value) { return std::isnan(value); }), 5);
  EXPECT_EQ(curve.mean.back(), 1);
}

TEST(Curves, MeansAndBandsAreThoseOfTheRows) {
  const ReducedCurve curve = reduced_curve({1, 3, kMissing, 10, 20, kMissing}, {.ends = {3, 5, 6}});
  EXPECT_EQ(shown(curve.mean), shown({2, 15, kMissing}));
  EXPECT_EQ(shown(curve.low), shown({1, 10, kMissing}));
  EXPECT_EQ(shown(curve.high), shown({3, 20, kMissing}));
  // A band that nobody would see is left out.
  EXPECT_TRUE(reduced_curve({0, 0.001, 500, 1000}, {.ends = {2, 3, 4}}).low.empty());
  EXPECT_TRUE(reduced_curve({1, 2, 3}, {.ends = {1, 2, 3}}).low.empty());
  EXPECT_EQ(last_values({1, 2, 3, 4}, {.ends = {1, 4}}), (std::vector<double>{1, 4}));
}

TEST(FieldHelp, PatternsAndPlacesComeFromNames) {
  EXPECT_EQ(field_pattern("blocks.3.attention.memory.0.gate.11"), "blocks.N.attention.memory.N.gate.N");
  EXPECT_EQ(field_pattern("commitment"), "commitment");
  EXPECT_EQ(field_place("blocks.3.attention.memory.0.gate.11"), "block 3, memory 0, gate 11");
  EXPECT_EQ(field_place("commitment"), "");
  EXPECT_EQ(field_place("4"), "4");
}

TEST(FieldHelp, IsThatOfThePageOfFields) {
  const auto steps = field_help(output_page(), "A logged step");
  EXPECT_EQ(steps.at("lr"), "learning rate of this step");
  EXPECT_FALSE(steps.contains("split"));
  const auto telemetry = field_help(output_page(), "Telemetry");
  EXPECT_GT(telemetry.size(), 10U);
  for (const auto& [name, help] : telemetry) {
    EXPECT_EQ(field_pattern(name), name);
    EXPECT_GT(help.size(), 10U) << name;
  }
  EXPECT_TRUE(field_help(output_page(), "No such heading").empty());
}

// A run with logged steps, without files.
ReportedRun run_named(const std::string& label) {
  ReportedRun run;
  run.path = run.label = run.config.run.name = label;
  run.step = 2;
  run.fields.at = {{1, 2}, {10, 20}, {0.5, 1}};
  run.fields.curves = {{"step", {{1, 2}, {}, {}}},
                       {"loss", {{2.5, kMissing}, {2, kMissing}, {3, kMissing}}},
                       {"skipped", {{0, 0}, {}, {}}}};
  run.telemetry.at = run.fields.at;
  run.telemetry.curves = {{"blocks.0.part.share.0", {{0.123456, 0.5}, {}, {}}},
                          {"blocks.0.part.share.1", {{0.25, 0.5}, {}, {}}},
                          {"term", {{1, 1}, {}, {}}}};
  return run;
}

TEST(ReportPage, DataHasCurvesByFieldAndTelemetryByGroup) {
  RunsPage page{{run_named("a"), run_named("b")}, std::nullopt};
  page.runs[1].evaluations = {{"valid", {{2}, {20}, {1}}, {1.5}, {2.25}, {kMissing}}};
  const auto data = page_data(page);
  ASSERT_EQ(data.at("runs").size(), 2U);
  const auto& run = data.at("runs").at(1);
  EXPECT_EQ(run.at("fields").at("loss").dump(), R"({"mean":[2.5,null],"low":[2,null],"high":[3,null]})");
  EXPECT_FALSE(run.at("fields").contains("step"));
  EXPECT_FALSE(run.at("fields").contains("skipped"));
  EXPECT_EQ(run.at("telemetry").at("blocks.0.part.share.0").at("mean").at(0), 0.1235);
  EXPECT_EQ(run.at("evaluations").at("valid").at("bits_per_byte").at(0), 1.5);
  EXPECT_FALSE(run.at("evaluations").at("valid").contains("recall"));
  const auto& charts = data.at("telemetry");
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts.at(0).at("field"), "blocks.N.part.share.N");
  EXPECT_EQ(charts.at(0).at("part"), "blocks.N.part");
  EXPECT_EQ(charts.at(0).at("places").size(), 2U);
  EXPECT_EQ(charts.at(0).at("places").at(1).at("place"), "block 0, share 1");
  EXPECT_EQ(charts.at(1).at("part"), "");
}

TEST(ReportPage, TextOfUsersStaysText) {
  const std::string hostile = "</script><script>alert(1)</script><!--\"'&\x01";
  ReportedRun run = run_named(hostile);
  run.notes = {hostile};
  run.operations = {{hostile, 2}};
  run.telemetry.curves.push_back({hostile, {{1, 2}, {}, {}}});
  run.evaluations = {{hostile, {{2}, {20}, {1}}, {1.5}, {2.25}, {kMissing}}};
  const std::string html = to_html({{run, run}, std::nullopt});
  EXPECT_TRUE(html.starts_with(kRunsPageMark));
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = html.find(part); at != std::string::npos; at = html.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("</script"), 3U);  // data, library, and the page's own script
  EXPECT_EQ(count("<!--"), 1U);      // the mark
  // The text arrives unchanged.
  const size_t begin = html.find("id=\"data\">") + 10;
  const auto data = nlohmann::ordered_json::parse(html.substr(begin, html.find("</script", begin) - begin));
  EXPECT_EQ(data.at("runs").at(0).at("label"), hostile);
}

TEST(ReportPage, ScriptsMayHaveTextsThatEndScripts) {
  EXPECT_EQ(script_in_html("a = \"</script>\" + /<!--/;"), "a = \"<\\/script>\" + /<\\!--/;");
  EXPECT_EQ(json_in_html({{"a", "</script><!--"}}), R"({"a":"\u003c/script>\u003c!--"})");
}

TEST(ReportPage, CarriesItsLibraryAndItsLicence) {
  const std::string html = to_html({{run_named("a")}, std::nullopt});
  EXPECT_NE(html.find("Chart.js v"), std::string::npos);
  EXPECT_NE(html.find("Released under the MIT License"), std::string::npos);
  EXPECT_NE(html.find("Permission is hereby granted, free of charge"), std::string::npos);
  for (const char* from_elsewhere : {"<link", "src=\"", "@import", "url(http"}) {
    EXPECT_EQ(html.find(from_elsewhere), std::string::npos) << from_elsewhere;
  }
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
}

TEST(ReportTables, SettingsOfOtherPartsStandWhereTheyBelong) {
  std::vector<ReportedRun> runs{run_named("a"), run_named("b")};
  runs[1].config.run.seed = 7;
  const ReportSection differing = settings_table(runs, false);
  ASSERT_EQ(differing.rows.size(), 2U);
  EXPECT_EQ(differing.rows[0], (std::vector<std::string>{"run.name", "a", "b"}));
  EXPECT_EQ(differing.rows[1], (std::vector<std::string>{"run.seed", "1", "7"}));
  EXPECT_GT(settings_table(runs, true).rows.size(), 50U);
}

TEST(ReportTables, OperationsThatNobodySeesAreOneLine) {
  std::vector<ReportedRun> runs{run_named("a"), run_named("b")};
  for (int i = 0; i < 25; ++i) runs[0].operations.push_back({"op" + std::to_string(i), 25.0 - i});
  const ReportSection table = operations_table(runs);
  ASSERT_EQ(table.rows.size(), 21U);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"op0", "25.00", "-"}));
  EXPECT_EQ(table.rows[20][0], "5 other operations");
  EXPECT_EQ(table.rows[20][1], "15.00");  // 5 + 4 + 3 + 2 + 1
}

}  // namespace
}  // namespace quire
