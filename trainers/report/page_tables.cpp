// The tables of a page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "trainers/report/page.h"

namespace quire {

namespace {

constexpr const char* kDash = "-";
constexpr double kMiB = 1 << 20;

std::string text_of(double value, const char* format) {
  return std::isnan(value) ? kDash : fmt::format(fmt::runtime(format), value);
}

std::string time_text(double seconds) {
  if (std::isnan(seconds)) return kDash;
  if (seconds < 600) return fmt::format("{:.3g} s", seconds);
  const auto minutes = static_cast<int64_t>(seconds / 60);
  return minutes < 600 ? fmt::format("{} min", minutes) : fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

// Returns the largest number of bytes that tensors had, as the metrics say; NaN where they do not.
double peak_of(const ReportedRun& run) {
  double peak = std::nan("");
  for (const ReportedCurve& of : run.fields.curves) {
    if (of.name != "peak_bytes") continue;
    for (const std::vector<double>* values : {&of.curve.mean, &of.curve.high}) {
      for (const double value : *values) peak = std::fmax(peak, value);
    }
  }
  return peak;
}

// A table with a column for every run.
ReportSection by_run(const std::string& title, const std::string& note, const std::vector<ReportedRun>& runs,
                     bool are_texts) {
  ReportSection section{title, note, {{"", true}}, {}, {}, {}};
  for (const ReportedRun& run : runs) section.columns.push_back({run.label, are_texts});
  return section;
}

}  // namespace

ReportSection runs_table(const std::vector<ReportedRun>& runs) {
  ReportSection section{"Runs",
                        "Numbers are those of the last logged step.",
                        {{"run", true},
                         {"name", true},
                         {"seed"},
                         {"step"},
                         {"of"},
                         {"tokens read"},
                         {"training time"},
                         {"tokens/s"},
                         {"loss"},
                         {"last line", true}},
                        {},
                        {},
                        {}};
  for (const ReportedRun& run : runs) {
    section.rows.push_back({run.label, run.config.run.name, fmt::format("{}", run.config.run.seed),
                            text_of(run.step, "{:.0f}"), fmt::format("{}", run.config.schedule.steps),
                            text_of(run.tokens, "{:.0f}"), time_text(run.seconds),
                            text_of(run.tokens / run.seconds, "{:.0f}"), text_of(run.loss, "{:.4f}"),
                            run.written.empty() ? kDash : run.written});
  }
  return section;
}

ReportSection operations_table(const std::vector<ReportedRun>& runs) {
  constexpr size_t kMaxRows = 20;
  ReportSection section = by_run(
      "", "Milliseconds a step, on random tokens; forward and backward pass are operations of their own.", runs, false);
  std::map<std::string, double> largest;
  for (const ReportedRun& run : runs) {
    for (const ReportedOperation& of : run.operations) largest[of.name] = std::max(largest[of.name], of.ms);
  }
  std::vector<std::pair<std::string, double>> order(largest.begin(), largest.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<double> rest(runs.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<std::string> row{order[i].first};
    for (size_t run = 0; run < runs.size(); ++run) {
      const auto& operations = runs[run].operations;
      const auto found = std::find_if(operations.begin(), operations.end(),
                                      [&](const ReportedOperation& of) { return of.name == order[i].first; });
      const bool has = found != operations.end();
      if (has && i >= kMaxRows) rest[run] += found->ms;
      row.push_back(has ? fmt::format("{:.2f}", found->ms) : kDash);
    }
    if (i < kMaxRows) section.rows.push_back(std::move(row));
  }
  if (order.size() <= kMaxRows) return section;
  std::vector<std::string>& row = section.rows.emplace_back();
  row.push_back(fmt::format("{} other operations", order.size() - kMaxRows));
  for (const double ms : rest) row.push_back(fmt::format("{:.2f}", ms));
  return section;
}

ReportSection memory_table(const std::vector<ReportedRun>& runs) {
  ReportSection section = by_run(
      "",
      "MiB of one process, computed from the configuration (quire plan). The last line is measured: the most that "
      "tensors have held at once, on the rank that held most.",
      runs, false);
  const auto add = [&](const char* name, const auto& bytes_of) {
    std::vector<std::string>& row = section.rows.emplace_back();
    row.emplace_back(name);
    for (const ReportedRun& run : runs) row.push_back(text_of(bytes_of(run) / kMiB, "{:.1f}"));
  };
  for (const MemoryKind& kind : kMemoryKinds) {
    const auto bytes = [&](const ReportedRun& run) { return run.plan ? (*run.plan).*kind.bytes : 0; };
    if (std::all_of(runs.begin(), runs.end(), [&](const ReportedRun& run) { return bytes(run) == 0; })) continue;
    add(kind.name,
        [&](const ReportedRun& run) { return run.plan ? static_cast<double>((*run.plan).*kind.bytes) : std::nan(""); });
  }
  add("a step, at its most",
      [](const ReportedRun& run) { return run.plan ? static_cast<double>(run.plan->step()) : std::nan(""); });
  add("with evaluations and checkpoints",
      [](const ReportedRun& run) { return run.plan ? static_cast<double>(run.plan->total()) : std::nan(""); });
  add("measured in tensors", peak_of);
  return section;
}

ReportSection settings_table(const std::vector<ReportedRun>& runs, bool all) {
  ReportSection section = by_run("", "", runs, true);
  for (size_t run = 0; run < runs.size(); ++run) {
    RunConfig config = runs[run].config;
    size_t place = 0;
    for (const ConfigSetting& setting : list_settings(StructRef<RunConfig>(config))) {
      const auto found = std::find_if(section.rows.begin(), section.rows.end(),
                                      [&](const auto& row) { return row.front() == setting.key; });
      // A key that only some runs have stands behind the one before it.
      if (found != section.rows.end()) {
        place = static_cast<size_t>(found - section.rows.begin());
      } else {
        std::vector<std::string> row(runs.size() + 1, kDash);
        row.front() = setting.key;
        section.rows.insert(section.rows.begin() + static_cast<std::ptrdiff_t>(place), std::move(row));
      }
      section.rows[place++][run + 1] = setting.value;
    }
  }
  if (all) return section;
  const auto is_shared = [](const std::vector<std::string>& row) {
    return std::all_of(row.begin() + 1, row.end(), [&](const std::string& value) { return value == row[1]; });
  };
  section.rows.erase(std::remove_if(section.rows.begin(), section.rows.end(), is_shared), section.rows.end());
  return section;
}

}  // namespace quire
