#include "trainers/compare/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace quire {

namespace {

constexpr const char* kNone = "-";

// Perplexities may be large; other figures are a few units.
std::string number_text(double value) {
  return std::abs(value) < 1000 ? fmt::format("{:.4f}", value) : fmt::format("{:.1f}", value);
}

std::string spread_text(const std::optional<Spread>& spread) {
  if (!spread) return kNone;
  const std::string mean = number_text(spread->mean);
  return spread->deviation ? fmt::format("{} ± {}", mean, number_text(*spread->deviation)) : mean;
}

std::string title_of(const DocumentMetric& metric) {
  if (metric.begin > 0 || metric.kind == DocumentMetric::Kind::recall_accuracy) return metric.name();
  return metric.kind == DocumentMetric::Kind::bits_per_byte ? "Bits per byte" : "Nats per token";
}

std::string group_text(const Comparison& comparison, size_t group, ReportNames names) {
  constexpr size_t kMaxName = 16;
  const RunGroup& of = comparison.groups[group];
  if (names == ReportNames::full) return of.name;
  return of.letter + " " + (of.name.size() > kMaxName ? of.name.substr(0, kMaxName - 2) + ".." : of.name);
}

ReportSection group_section(const Comparison& comparison, ReportNames names) {
  ReportSection section{"Final figures",
                        fmt::format("Split {}: mean and standard deviation over the runs of a group, whose "
                                    "configurations differ in the seed alone.",
                                    comparison.split),
                        {{"group", true}, {"runs"}, {"bits per byte"}, {"token perplexity"}, {"loss (nats)"}},
                        {},
                        {},
                        {}};
  const auto is_shown = [](const DocumentMetric& metric) {
    return metric.begin == 0 && metric.kind != DocumentMetric::Kind::recall_accuracy;
  };
  for (const DocumentMetric& metric : comparison.metrics) {
    if (!is_shown(metric)) section.columns.push_back({metric.name()});
  }
  for (size_t i = 0; i < comparison.groups.size(); ++i) {
    const GroupFigures& figures = comparison.figures[i];
    std::vector<std::string>& row = section.rows.emplace_back();
    row = {group_text(comparison, i, names), fmt::format("{}", comparison.groups[i].runs.size()),
           spread_text(figures.bits_per_byte), spread_text(figures.token_perplexity), spread_text(figures.loss)};
    for (size_t metric = 0; metric < comparison.metrics.size(); ++metric) {
      if (!is_shown(comparison.metrics[metric])) row.push_back(spread_text(figures.of_metrics[metric]));
    }
  }
  return section;
}

// Returns the difference, percent, interval, numbers of documents and seeds, and the reason for what is missing.
std::vector<std::string> difference_cells(const GroupDifference& of) {
  std::vector<std::string> cells{kNone, kNone, kNone, fmt::format("{}", of.documents),
                                 fmt::format("{}", of.seeds.size())};
  if (!of.difference) return cells;
  cells[0] = fmt::format("{:+.4f}", of.difference->mean);
  if (of.difference->percent) cells[1] = fmt::format("{:+.1f} %", *of.difference->percent);
  if (const auto interval = of.difference->interval) {
    cells[2] = fmt::format("{:+.4f} to {:+.4f}", interval->low, interval->high);
  }
  return cells;
}

std::vector<std::string> by_seed_texts(const GroupDifference& of, ReportNames names) {
  std::vector<std::string> texts;
  if (!of.difference) return texts;
  for (size_t i = 0; i < of.difference->by_seed.size(); ++i) {
    texts.push_back(fmt::format("{:+.4f}", of.difference->by_seed[i]));
    if (names == ReportNames::lettered) texts.back() += fmt::format(" (seed {})", of.seeds[i]);
  }
  return texts;
}

ReportSection difference_section(const Comparison& comparison, ReportNames names) {
  const bool several = comparison.metrics.size() > 1;
  ReportSection section{fmt::format("Difference from {}", group_text(comparison, comparison.baseline, names)),
                        fmt::format("{}ocument by document: mean over documents of the mean over seeds; 95 % bootstrap "
                                    "interval that resamples documents and seeds.",
                                    several ? "D" : title_of(comparison.metrics.front()) + ", d"),
                        {{"group", true}},
                        {},
                        {},
                        {}};
  if (several) section.columns.push_back({"metric", true});
  for (const char* title : {"difference", "percent", "95 % interval", "documents", "seeds"}) {
    section.columns.push_back({title});
  }
  if (names == ReportNames::full) section.columns.push_back({"by seed"});
  for (const GroupDifference& of : comparison.differences) {
    std::string group = group_text(comparison, of.group, names);
    if (of.baseline != comparison.baseline) group += ", beside " + group_text(comparison, of.baseline, names);
    std::vector<std::string>& row = section.rows.emplace_back(std::vector<std::string>{group});
    if (several) row.push_back(comparison.metrics[of.metric].name());
    const std::vector<std::string> cells = difference_cells(of);
    row.insert(row.end(), cells.begin(), cells.end());
    section.ranges.emplace_back();
    if (of.difference) {
      const Interval ends = of.difference->interval.value_or(Interval{of.difference->mean, of.difference->mean});
      section.ranges.back() = ReportRange{ends.low, of.difference->mean, ends.high};
    }
    const std::string of_metric = several ? fmt::format("{}, {}", group, comparison.metrics[of.metric].name()) : group;
    const std::vector<std::string> by_seed = by_seed_texts(of, names);
    if (names == ReportNames::full) {
      row.push_back(fmt::format("{}", fmt::join(by_seed, ", ")));
    } else if (by_seed.size() > 1) {
      section.remarks.push_back(fmt::format("{}: {}.", of_metric, fmt::join(by_seed, ", ")));
    }
    const std::string& reason = of.difference ? of.without_interval : of.without_difference;
    if (reason.empty()) continue;
    section.remarks.push_back(
        fmt::format("{}: no {}: {}.", of_metric, of.difference ? "interval" : "difference", reason));
  }
  return section;
}

ReportSection position_section(const Comparison& comparison, ReportNames names) {
  ReportSection section{
      "By position in the document",
      fmt::format("{} of the targets at these positions, mean over the runs of a group.",
                  comparison.position_metric == CompareMetric::bits_per_byte ? "Bits per byte" : "Nats per token"),
      {{"position", true}},
      {},
      {},
      {}};
  for (size_t i = 0; i < comparison.groups.size(); ++i) section.columns.push_back({group_text(comparison, i, names)});
  for (const PositionRow& row : comparison.positions) {
    std::vector<std::string>& cells = section.rows.emplace_back();
    cells.push_back(fmt::format("{}..{}", row.begin, row.end - 1));
    for (const std::optional<Spread>& figure : row.groups) cells.push_back(figure ? number_text(figure->mean) : kNone);
  }
  return section;
}

ReportSection budget_section(const Comparison& comparison, ReportNames names) {
  const auto budget = [](const EqualBudget& equal, const char* unit, const char* format) {
    return equal.budget ? fmt::format(fmt::runtime(format), *equal.budget) + unit : kNone;
  };
  ReportSection section{
      "At equal time and at equal tokens",
      fmt::format(
          "{} of the evaluations while training, on a line between those beside it, at what the group that used "
          "least has used: {} of training steps, and {}.",
          comparison.budget_metric == CompareMetric::bits_per_byte ? "Bits per byte" : "Nats per token",
          budget(comparison.equal_time, " s", "{:.4g}"), budget(comparison.equal_tokens, " tokens", "{:.0f}")),
      {{"group", true}, {"step"}, {"at equal time"}, {"step"}, {"at equal tokens"}},
      {},
      {},
      {}};
  for (size_t i = 0; i < comparison.groups.size(); ++i) {
    std::vector<std::string>& row = section.rows.emplace_back();
    row.push_back(group_text(comparison, i, names));
    for (const EqualBudget* equal : {&comparison.equal_time, &comparison.equal_tokens}) {
      const bool any = i < equal->groups.size() && equal->groups[i].figure.has_value();
      if (!any && equal->budget) {
        section.remarks.push_back(fmt::format("{}: a run has no evaluation before {:.4g} {}.", row.front(),
                                              *equal->budget, equal == &comparison.equal_time ? "s" : "tokens"));
      }
      row.push_back(any ? fmt::format("{:.0f}", spread_of(equal->groups[i].steps)->mean) : kNone);
      row.push_back(any ? spread_text(equal->groups[i].figure) : kNone);
    }
  }
  if (!comparison.equal_time.without.empty()) section.remarks.push_back(comparison.equal_time.without + ".");
  return section;
}

ReportSection configuration_section(const Comparison& comparison, ReportNames names) {
  ReportSection section{"What differs between the configurations", "", {{"key", true}}, {}, {}, {}};
  for (const RunGroup& group : comparison.groups) {
    section.columns.push_back({names == ReportNames::full ? group.name : group.letter, true});
  }
  for (const DifferingKey& key : comparison.configuration) {
    std::vector<std::string>& row = section.rows.emplace_back();
    row.push_back(key.key);
    for (const std::string& value : key.values) row.push_back(value.empty() ? kNone : value);
  }
  return section;
}

}  // namespace

std::vector<ReportSection> figure_sections(const Comparison& comparison, ReportNames names) {
  std::vector<ReportSection> sections{group_section(comparison, names)};
  if (!comparison.differences.empty()) sections.push_back(difference_section(comparison, names));
  if (!comparison.positions.empty()) sections.push_back(position_section(comparison, names));
  const bool has_budget = comparison.equal_time.budget || comparison.equal_tokens.budget;
  if (comparison.groups.size() > 1 && (has_budget || names == ReportNames::lettered)) {
    sections.push_back(budget_section(comparison, names));
  }
  return sections;
}

ReportSection run_section(const Comparison& comparison) {
  const bool bits = comparison.metric == CompareMetric::bits_per_byte;
  ReportSection section{
      "Runs", "", {{"", true}, {"run", true, 30}, {shown_name(comparison.metric)}, {"seed"}, {"step"}, {"tokens read"}},
      {},     {}, {}};
  for (const RunGroup& group : comparison.groups) {
    for (const size_t number : group.runs) {
      const ComparedRun& run = comparison.runs[number];
      const StoredEvaluation& evaluation = run.evaluation;
      section.rows.push_back({group.letter, run.path,
                              number_text(bits ? *evaluation.bits_per_byte() : evaluation.loss()),
                              fmt::format("{}", run.seed()), fmt::format("{}", evaluation.trained.step),
                              evaluation.trained.tokens ? fmt::format("{}", *evaluation.trained.tokens) : kNone});
      if (!run.evaluated_now) continue;
      section.remarks.push_back(
          fmt::format("{} had stored no evaluation of split {}, so it was evaluated now.", run.path, comparison.split));
    }
  }
  return section;
}

Report report_of(const Comparison& comparison, ReportNames names) {
  const size_t groups = comparison.groups.size();
  const std::string of = groups == 1 ? "one configuration" : fmt::format("{} configurations", groups);
  Report report{fmt::format("{} runs of {}, split {}", comparison.runs.size(), of, comparison.split),
                comparison.warnings, figure_sections(comparison, names)};
  if (!comparison.configuration.empty()) report.sections.push_back(configuration_section(comparison, names));
  report.sections.push_back(run_section(comparison));
  return report;
}

}  // namespace quire
