// Makes the JSON that the script of a page draws.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trainers/report/field_help.h"
#include "trainers/report/page.h"
#include "trainers/report/page_files.h"

namespace quire {

namespace {

using PageJson = nlohmann::ordered_json;

struct FieldTitle {
  const char* name;
  const char* title;
  const char* unit;
};
// Fields of a logged step in the order of their charts; fields that are not here follow under their own names.
constexpr FieldTitle kTitles[] = {
    {"loss", "Training loss", "nats per token"}, {"lr", "Learning rate", ""},
    {"grad_norm", "Gradient norm", ""},          {"tokens_per_second", "Tokens per second", ""},
    {"step_ms", "Time of a step", "ms"},         {"peak_bytes", "Largest memory in tensors", "bytes"}};
// Axes, and a share of one of them.
const std::set<std::string> kNotDrawn{"step", "tokens", "epoch"};

// Returns numbers with so many digits that a chart does not show a difference; not finite ones become null.
PageJson numbers(const std::vector<double>& values, int digits) {
  PageJson::array_t array;
  array.reserve(values.size());
  for (const double value : values) {
    if (!std::isfinite(value)) {
      array.emplace_back(nullptr);
      continue;
    }
    const double rounded = std::stod(fmt::format("{:.{}g}", value, digits));
    const bool is_whole = rounded == std::floor(rounded) && std::abs(rounded) < 1e15;
    is_whole ? array.emplace_back(static_cast<int64_t>(rounded)) : array.emplace_back(rounded);
  }
  return array;
}

PageJson axes_json(const ReportedAxes& axes) {
  return {
      {"step", numbers(axes.step, 15)}, {"tokens", numbers(axes.tokens, 15)}, {"seconds", numbers(axes.seconds, 6)}};
}

bool has_numbers(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}
bool is_zero(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return value == 0; });
}

PageJson curves_json(const ReportedCurves& curves, int digits) {
  PageJson json = PageJson::object();
  for (const ReportedCurve& of : curves.curves) {
    if (kNotDrawn.contains(of.name) || !has_numbers(of.curve.mean)) continue;
    if (of.name == "skipped" && is_zero(of.curve.mean)) continue;
    PageJson& curve = json[of.name];
    curve["mean"] = numbers(of.curve.mean, digits);
    if (of.curve.low.empty()) continue;
    curve["low"] = numbers(of.curve.low, digits);
    curve["high"] = numbers(of.curve.high, digits);
  }
  return json;
}

PageJson evaluations_json(const std::vector<ReportedEvaluations>& evaluations) {
  PageJson json = PageJson::object();
  for (const ReportedEvaluations& of : evaluations) {
    PageJson& split = json[of.split];
    split["at"] = axes_json(of.at);
    if (has_numbers(of.bits_per_byte)) split["bits_per_byte"] = numbers(of.bits_per_byte, 6);
    if (has_numbers(of.nats_per_token)) split["nats_per_token"] = numbers(of.nats_per_token, 6);
    if (has_numbers(of.recall)) split["recall"] = numbers(of.recall, 5);
  }
  return json;
}

PageJson memory_json(const ReportedRun& run) {
  PageJson json = PageJson::object();
  if (!run.plan) return json;
  for (const MemoryKind& kind : kMemoryKinds) json[kind.name] = (*run.plan).*kind.bytes;
  return json;
}

PageJson run_json(const ReportedRun& run) {
  PageJson operations = PageJson::object();
  for (const ReportedOperation& operation : run.operations) {
    operations[operation.name] = numbers({operation.ms}, 4).front();
  }
  return {{"label", run.label},
          {"at", axes_json(run.fields.at)},
          {"fields", curves_json(run.fields, 5)},
          {"telemetry_at", axes_json(run.telemetry.at)},
          {"telemetry", curves_json(run.telemetry, 4)},
          {"evaluations", evaluations_json(run.evaluations)},
          {"memory", memory_json(run)},
          {"operations", operations}};
}

PageJson chart_json(const std::string& field, const std::string& title, const std::string& unit,
                    const std::string& help) {
  return {{"field", field}, {"title", title}, {"unit", unit}, {"help", help}};
}

// Charts of the fields of logged steps.
PageJson field_charts(const std::vector<ReportedRun>& runs) {
  const auto help = field_help(output_page(), "A logged step");
  const auto help_of = [&](const std::string& name) { return help.contains(name) ? help.at(name) : ""; };
  PageJson charts = PageJson::array();
  std::set<std::string> done = kNotDrawn;
  for (const FieldTitle& of : kTitles) {
    charts.push_back(chart_json(of.name, of.title, of.unit, help_of(of.name)));
    done.insert(of.name);
  }
  for (const ReportedRun& run : runs) {
    for (const ReportedCurve& curve : run.fields.curves) {
      if (done.insert(curve.name).second) charts.push_back(chart_json(curve.name, curve.name, "", help_of(curve.name)));
    }
  }
  return charts;
}

// Says whether nats per token would say the same about every run.
bool all_have_bits(const std::vector<ReportedRun>& runs, const std::string& split) {
  for (const ReportedRun& run : runs) {
    for (const ReportedEvaluations& of : run.evaluations) {
      if (of.split == split && !has_numbers(of.bits_per_byte)) return false;
    }
  }
  return true;
}

// Charts of evaluations while training: those figures of each split that a run has.
PageJson evaluation_charts(const std::vector<ReportedRun>& runs) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kFigures{{
      {"bits_per_byte", "Bits per byte"},
      {"nats_per_token", "Nats per token"},
      {"recall", "Accuracy of recalled tokens"},
  }};
  PageJson charts = PageJson::array();
  std::set<std::string> splits;
  for (const ReportedRun& run : runs) {
    for (const ReportedEvaluations& of : run.evaluations) {
      if (!splits.insert(of.split).second) continue;
      for (const auto& [figure, title] : kFigures) {
        if (figure == kFigures[1].first && all_have_bits(runs, of.split)) continue;
        PageJson chart =
            chart_json(figure, fmt::format("{}, split {}", title, of.split), "", "evaluations while training");
        chart["split"] = of.split;
        charts.push_back(chart);
      }
    }
  }
  return charts;
}

// Groups of telemetry whose names differ in numbers alone.
PageJson telemetry_charts(const std::vector<ReportedRun>& runs) {
  const auto help = field_help(output_page(), "Telemetry");
  std::map<std::string, std::vector<std::string>> groups;
  std::vector<std::string> order;
  std::set<std::string> names;
  for (const ReportedRun& run : runs) {
    for (const ReportedCurve& curve : run.telemetry.curves) {
      if (!has_numbers(curve.curve.mean) || !names.insert(curve.name).second) continue;
      const std::string pattern = field_pattern(curve.name);
      if (!groups.contains(pattern)) order.push_back(pattern);
      groups[pattern].push_back(curve.name);
    }
  }
  // The places of a part stand together, and parts in the order in which runs have them.
  const auto part_of = [](const std::string& pattern) {
    const size_t end = pattern.ends_with(".N") ? pattern.size() - 2 : pattern.size();
    const size_t dot = pattern.rfind('.', end - 1);
    return dot == std::string::npos ? std::string() : pattern.substr(0, dot);
  };
  std::map<std::string, size_t> parts;
  for (const std::string& pattern : order) parts.emplace(part_of(pattern), parts.size());
  std::stable_sort(order.begin(), order.end(), [&](const std::string& one, const std::string& other) {
    return parts.at(part_of(one)) < parts.at(part_of(other));
  });
  PageJson charts = PageJson::array();
  for (const std::string& pattern : order) {
    PageJson chart = chart_json(pattern, pattern, "", help.contains(pattern) ? help.at(pattern) : "");
    chart["part"] = part_of(pattern);
    for (const std::string& name : groups.at(pattern)) {
      chart["places"].push_back({{"name", name}, {"place", field_place(name)}});
    }
    charts.push_back(chart);
  }
  return charts;
}

}  // namespace

nlohmann::ordered_json page_data(const RunsPage& page) {
  PageJson data{{"fields", field_charts(page.runs)},
                {"evaluations", evaluation_charts(page.runs)},
                {"telemetry", telemetry_charts(page.runs)},
                {"runs", PageJson::array()}};
  for (const ReportedRun& run : page.runs) data["runs"].push_back(run_json(run));
  return data;
}

}  // namespace quire
