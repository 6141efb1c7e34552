// Tests quire report as a program: its page in a browser, what it says of runs that lack something, what it may
// replace, and how long it takes.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <regex>
#include <thread>

#include "tests/faults/expect_fault.h"
#include "tests/support/small_disk.h"
#include "trainers/report/page.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Returns the program of a Chromium; empty without one.
fs::path find_chromium() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      if (::access((fs::path(folder) / name).c_str(), X_OK) == 0) return fs::path(folder) / name;
    }
  }
  return {};
}

class ReportProgram : public ::testing::Test {
 protected:
  void train(const std::string& run, std::vector<std::string> overrides) const {
    overrides.insert(overrides.end(), {"schedule.steps=8", "schedule.kind=constant"});
    const ProgramResult result = tiny_.train(run, overrides);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  // Runs of two mechanisms, with telemetry by layer and by head.
  void train_two() const {
    train("a", {"evaluate.every=4", "model.heads=4",
                "model.memory=[{kind: knn, layers: [0, 1], carry: {length: 24}, top_k: 4}]"});
    train("b", {"evaluate.every=4", "model.attention={kind: vq, vq: {window: 6, block: 4, codes: 5}}",
                "model.layer_overrides=[]"});
  }
  std::string path(const std::string& name) const { return (tiny_ / name).string(); }
  ProgramResult report(const std::vector<std::string>& runs, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"report", "--output", path("report.html")};
    for (const std::string& run : runs) arguments.push_back(path(run));
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  }
  std::string page() const { return read_text(tiny_ / "report.html"); }
  nlohmann::ordered_json data() const {
    const std::string html = page();
    const size_t begin = html.find("id=\"data\">") + 10;
    return nlohmann::ordered_json::parse(html.substr(begin, html.find("</script", begin) - begin));
  }
  // Opens a page in the browser with all its charts. Returns the document on stdout, and the console on stderr.
  ProgramResult browse(const fs::path& chromium, const std::string& file, const std::string& width) const {
    ProgramOptions options;
    options.program = chromium.string();
    options.environment = {{"HOME", path("")}};
    return run_quire(
        {"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + path("browser"),
         "--window-size=" + width + ",900", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=10000",
         "--dump-dom", "file://" + path(file) + "#all"},
        options);
  }
  TinyRun tiny_;
};

TEST_F(ReportProgram, DrawsEveryChartWithoutAnErrorInTheConsole) {
  const fs::path chromium = find_chromium();
  if (chromium.empty()) GTEST_SKIP() << "there is no Chromium here";
  train_two();
  const ProgramResult profiled =
      run_quire({"bench", path("a/config.yaml"), "--steps", "2", "--warmup", "1", "--profile", "--json"});
  ASSERT_EQ(profiled.code, 0) << profiled.err;
  write_text(tiny_ / "a/profile.json", profiled.out);
  ASSERT_EQ(report({"a", "b"}).code, 0);
  const std::regex charts("data-charts=\"([0-9]+) of ([0-9]+)\"");
  for (const char* width : {"400", "1280"}) {
    const ProgramResult seen = browse(chromium, "report.html", width);
    ASSERT_EQ(seen.code, 0) << seen.err;
    EXPECT_EQ(seen.err.find("CONSOLE"), std::string::npos) << seen.err;
    std::smatch match;
    ASSERT_TRUE(std::regex_search(seen.out, match, charts)) << seen.err;
    EXPECT_EQ(match[1], match[2]);
    EXPECT_GT(std::stoi(match[1]), 15);
  }
  // Every control, one after the other, and every choice of what a chart draws.
  write_text(tiny_ / "used.html", page() + R"(<script>
document.querySelectorAll("#controls input, #controls select, .card select").forEach((control) => {
  if (control.type === "checkbox") control.checked = !control.checked;
  const values = control.type === "checkbox" ? [""] : [...control.options].map((option) => option.value).reverse();
  for (const value of values) {
    if (value) control.value = value;
    control.dispatchEvent(new Event("change"));
  }
  if (control.closest("#runs")) control.click();
});
document.body.dataset.used = document.querySelectorAll(".card select").length;
drawAll();
const canvas = document.querySelector("#fields canvas");
const box = canvas.getBoundingClientRect();
const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true };
canvas.dispatchEvent(new MouseEvent("mousemove", at));
setTimeout(() => { document.body.dataset.read = Chart.getChart(canvas).getActiveElements().length; }, 500);
</script>
)");
  const ProgramResult used = browse(chromium, "used.html", "1280");
  EXPECT_EQ(used.err.find("CONSOLE"), std::string::npos) << used.err;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(used.out, match, charts)) << used.err;
  EXPECT_EQ(match[1], match[2]);
  ASSERT_TRUE(std::regex_search(used.out, match, std::regex("data-used=\"([0-9]+)\""))) << used.err;
  EXPECT_GT(std::stoi(match[1]), 5);
  // The pointer reads a point of each run.
  EXPECT_NE(used.out.find("data-read=\"2\""), std::string::npos);
  // A mistake would be seen.
  write_text(tiny_ / "wrong.html", page() + "<script>no_such_function();</script>\n");
  EXPECT_NE(browse(chromium, "wrong.html", "400").err.find("no_such_function is not defined"), std::string::npos);
}

TEST_F(ReportProgram, HasCurvesFiguresTelemetryMemoryAndConfigurations) {
  train_two();
  const ProgramResult result = report({"a", "b"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("report.html: 2 runs, "), std::string::npos) << result.out;
  const std::string html = page();
  for (const char* part : {"Final figures", "Difference from A", "Memory by kind", "Configurations",
                           "model.attention.kind", "Not recorded for ", "a step, at its most"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  const auto json = data();
  const auto lines = read_metrics(tiny_ / "a/metrics.jsonl");
  const auto& run = json.at("runs").at(0);
  EXPECT_EQ(run.at("at").at("step").size(), 8U);
  for (const char* field : {"loss", "lr", "grad_norm", "tokens_per_second", "step_ms"}) {
    const auto& mean = run.at("fields").at(field).at("mean");
    ASSERT_EQ(mean.size(), 8U);
    const double expected = lines.front().at(field).get<double>();
    EXPECT_NEAR(mean.front().get<double>(), expected, 1e-4 * expected) << field;
  }
  EXPECT_EQ(run.at("evaluations").at("valid").at("at").at("step").dump(), "[4,8]");
  EXPECT_GT(run.at("memory").at("weights").get<int64_t>(), 0);
  // Every name of telemetry is in one chart, with the meaning that the page of fields gives.
  std::set<std::string> names;
  size_t with_help = 0;
  for (const auto& chart : json.at("telemetry")) {
    with_help += chart.at("help").get<std::string>().empty() ? 0 : 1;
    for (const auto& place : chart.at("places")) {
      EXPECT_TRUE(names.insert(place.at("name").get<std::string>()).second) << place;
    }
  }
  EXPECT_EQ(with_help, json.at("telemetry").size());
  size_t logged = 0;
  for (const char* name : {"a", "b"}) {
    const auto last = read_metrics(tiny_ / name / "metrics.jsonl").at(6);
    for (const auto& [key, value] : last.at("telemetry").items()) {
      EXPECT_TRUE(names.contains(key)) << key;
      ++logged;
    }
  }
  EXPECT_GT(logged, 10U);
}

TEST_F(ReportProgram, SaysWhatRunsLackAndHowToGetIt) {
  train("a", {});
  const ProgramResult alone = report({"a"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_NE(alone.out.find("a: no evaluation of split valid is stored"), std::string::npos) << alone.out;
  EXPECT_NE(page().find("No run has a stored evaluation"), std::string::npos);
  EXPECT_NE(page().find("quire bench " + path("a") + "/config.yaml --profile --json &gt; "), std::string::npos);
  EXPECT_FAULT(report({"a"}, {"--baseline", path("a")}), 2, "no evaluation of split valid is stored");

  // A run that has only begun, a torn last line, a profile of something else, and a corpus that is gone.
  fs::create_directory(tiny_ / "new");
  fs::copy(tiny_ / "a/config.yaml", tiny_ / "new/config.yaml");
  std::ofstream(tiny_ / "a/metrics.jsonl", std::ios::app) << R"({"step":9,"lo)";
  write_text(tiny_ / "a/profile.json", "{\"steps\": 1, \"operations\": [{}]}");
  fs::rename(tiny_.corpus(), tiny_ / "elsewhere.h5");
  const ProgramResult both = report({"a", "new"});
  ASSERT_EQ(both.code, 0) << both.err;
  for (const char* part : {"new: no step has been logged yet", "profile.json is not what quire bench --profile --json",
                           "corpus.h5 is not here, so its memory is computed for "}) {
    EXPECT_NE(both.out.find(part), std::string::npos) << part << " in " << both.out;
  }
  write_text(tiny_.corpus(), "mine");
  EXPECT_NE(report({"a"}).out.find("a: its memory cannot be computed here: "), std::string::npos);
  ASSERT_EQ(report({"a", "new"}).code, 0);
  EXPECT_EQ(data().at("runs").at(0).at("at").at("step").size(), 8U);
  EXPECT_EQ(data().at("runs").at(1).at("at").at("step").size(), 0U);
}

TEST_F(ReportProgram, WhatIsNoRunIsRefused) {
  train("a", {});
  EXPECT_FAULT(run_quire({"report"}), 2, "RUN is required");
  EXPECT_FAULT(report({"a", "a"}), 2, "is given twice");
  EXPECT_FAULT(report({""}), 2, "is a folder of runs; give one of them");
  EXPECT_FAULT(report({"none"}), 2, "none: no run here");
  EXPECT_FAULT(report({"a"}, {"--baseline", path("none")}), 2, "is none of the runs");
  EXPECT_FAULT(report({"a"}, {"--split", ""}), 2, "--split: the value is empty");
  write_text(tiny_ / "a/metrics.jsonl", "mine\n");
  EXPECT_FAULT(report({"a"}), 3, "metrics.jsonl:1: not a JSON object");
  EXPECT_FALSE(fs::exists(tiny_ / "report.html"));
}

TEST_F(ReportProgram, LeavesOutADamagedRun) {
  train_two();
  write_text(tiny_ / "a/metrics.jsonl", "mine\n");
  EXPECT_FAULT(report({"a", "b"}, {"--baseline", path("a")}), 3, "a: its files are damaged");
  const ProgramResult result = report({"a", "b"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  EXPECT_NE(result.err.find("a/metrics.jsonl:1: not a JSON object"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("; the page leaves this run out"), std::string::npos) << result.err;
  ASSERT_EQ(data().at("runs").size(), 1U);
  EXPECT_NE(result.out.find("1 run, "), std::string::npos) << result.out;
}

TEST_F(ReportProgram, ReadsARunThatGoesOn) {
  RunningProgram running(tiny_.train_arguments("a", {"schedule.steps=1000000", "schedule.kind=constant"}));
  while (read_metrics(tiny_ / "a/metrics.jsonl").size() < 20 && running.running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(tiny_ / "a")) names.insert(entry.path().filename());
    return names;
  };
  const std::set<std::string> before = files();
  const ProgramResult result = report({"a"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(running.running());
  EXPECT_EQ(files(), before);
  EXPECT_GE(data().at("runs").at(0).at("at").at("step").back().get<int64_t>(), 20);
}

TEST_F(ReportProgram, PagesReplacePagesOnly) {
  train("a", {});
  ASSERT_EQ(report({"a"}).code, 0);
  ASSERT_EQ(report({"a"}).code, 0);
  const std::string mine = "<!DOCTYPE html>\n<title>mine</title>\n";
  write_text(tiny_ / "report.html", mine);
  EXPECT_FAULT(report({"a"}), 2, "exists already and is not a page of quire report");
  EXPECT_EQ(page(), mine);
  for (const char* name : {"run.yaml", "a/config.yaml", "a/metrics.jsonl"}) {
    const std::string before = read_text(tiny_ / name);
    EXPECT_FAULT(run_quire({"report", path("a"), "--output", path(name)}), 2, "is not a page of quire report");
    EXPECT_EQ(read_text(tiny_ / name), before);
  }
  fs::create_symlink(tiny_ / "report.html", tiny_ / "link.html");
  EXPECT_FAULT(run_quire({"report", path("a"), "--output", path("link.html")}), 2, "link.html: is a link");
  EXPECT_FAULT(run_quire({"report", path("a"), "--output", "/no/such/folder/a.html"}), 7,
               "--output /no/such/folder/a.html: there is no folder /no/such/folder");
  // Without --output it is report.html of the current folder.
  ProgramOptions options;
  options.folder = tiny_ / "a";
  EXPECT_EQ(run_quire({"report", path("a")}, options).code, 0);
  EXPECT_TRUE(read_text(tiny_ / "a/report.html").starts_with(kRunsPageMark));
}

TEST_F(ReportProgram, AFullDiskLeavesWhatWasThere) {
  const SmallDisk disk(2000);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk is not permitted here";
  train("a", {});
  const std::vector<std::string> arguments{"report", path("a"), "--output", (disk.path() / "page.html").string()};
  ASSERT_EQ(run_quire(arguments).code, 0);
  const std::string before = read_text(disk.path() / "page.html");
  write_text(disk.path() / "filler", std::string(fs::space(disk.path()).available, 'x'));
  const ProgramResult full = run_quire(arguments);
  EXPECT_EQ(full.code, 7) << full.err;
  ASSERT_EQ(full.errors().size(), 1U) << full.err;
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  EXPECT_EQ(read_text(disk.path() / "page.html"), before);
  EXPECT_FALSE(fs::exists(disk.path() / "page.html.partial"));
}

// Two runs of 100,000 lines, a fifth of what the page is made for.
TEST_F(ReportProgram, LongRunsTakeSecondsAndMakeASmallPage) {
  train("a", {});
  const std::string first = read_metrics(tiny_ / "a/metrics.jsonl").front().dump();
  std::string lines;
  for (int step = 1; step <= 100000; ++step) {
    lines +=
        fmt::format("{{\"step\":{},\"loss\":{},\"gone\":{}", step, step == 61234 ? 77.0 : 2 + 1.0 / step, step % 7);
    lines += first.substr(first.find(",\"lr\"")) + "\n";
  }
  fs::create_directory(tiny_ / "b");
  fs::copy(tiny_ / "a/config.yaml", tiny_ / "b/config.yaml");
  for (const char* run : {"a", "b"}) write_text(tiny_ / run / "metrics.jsonl", lines);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(report({"a", "b"}).code, 0);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 5) << "and it takes 0.2 s on an idle core";
  EXPECT_LT(page().size(), 1U << 20);
  const auto loss = data().at("runs").at(0).at("fields").at("loss");
  EXPECT_LE(loss.at("mean").size(), 500U);
  double highest = 0;
  for (const auto& value : loss.at("high")) highest = std::max(highest, value.get<double>());
  EXPECT_EQ(highest, 77);
}

}  // namespace
}  // namespace quire::test
