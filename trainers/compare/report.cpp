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

std::string group_text(const Comparison& comparison, size_t group) {
  constexpr size_t kMaxName = 16;
  const RunGroup& of = comparison.groups[group];
  return of.letter + " " + (of.name.size() > kMaxName ? of.name.substr(0, kMaxName - 2) + ".." : of.name);
}

ReportSection group_section(const Comparison& comparison) {
  ReportSection section{"Final figures",
                        fmt::format("Split {}: mean and standard deviation over the runs of a group, whose "
                                    "configurations differ in the seed alone.",
                                    comparison.split),
                        {{"group", true}, {"runs"}, {"bits per byte"}, {"token perplexity"}, {"loss (nats)"}},
                        {},
                        {},
                        {}};
  for (size_t i = 0; i < comparison.groups.size(); ++i) {
    const GroupFigures& figures = comparison.figures[i];
    section.rows.push_back({group_text(comparison, i), fmt::format("{}", comparison.groups[i].runs.size()),
                            spread_text(figures.bits_per_byte), spread_text(figures.token_perplexity),
                            spread_text(figures.loss)});
  }
  return section;
}

ReportSection difference_section(const Comparison& comparison) {
  ReportSection section{
      fmt::format("Difference from {}", group_text(comparison, comparison.baseline)),
      fmt::format("{}, document by document: mean over documents of the mean over seeds; 95 % bootstrap interval that "
                  "resamples documents and seeds.",
                  comparison.metric == CompareMetric::bits_per_byte ? "Bits per byte" : "Nats per token"),
      {{"group", true}, {"difference"}, {"percent"}, {"95 % interval"}, {"documents"}, {"seeds"}},
      {},
      {},
      {}};
  for (const GroupDifference& of : comparison.differences) {
    const std::string group = group_text(comparison, of.group);
    std::vector<std::string> row{
        group, kNone, kNone, kNone, fmt::format("{}", of.documents), fmt::format("{}", of.seeds.size())};
    section.ranges.emplace_back();
    const std::string& reason = of.difference ? of.without_interval : of.without_difference;
    if (of.difference) {
      const PairedDifference& difference = *of.difference;
      row[1] = fmt::format("{:+.4f}", difference.mean);
      if (difference.percent) row[2] = fmt::format("{:+.1f} %", *difference.percent);
      if (const auto interval = difference.interval) {
        row[3] = fmt::format("{:+.4f} to {:+.4f}", interval->low, interval->high);
      }
      std::vector<std::string> by_seed;
      for (size_t i = 0; i < difference.by_seed.size(); ++i) {
        by_seed.push_back(fmt::format("{:+.4f} (seed {})", difference.by_seed[i], of.seeds[i]));
      }
      const Interval ends = difference.interval.value_or(Interval{difference.mean, difference.mean});
      section.ranges.back() = ReportRange{ends.low, difference.mean, ends.high};
      if (by_seed.size() > 1) section.remarks.push_back(fmt::format("{}: {}.", group, fmt::join(by_seed, ", ")));
    }
    if (!reason.empty()) {
      section.remarks.push_back(
          fmt::format("{}: no {}: {}.", group, of.difference ? "interval" : "difference", reason));
    }
    section.rows.push_back(std::move(row));
  }
  return section;
}

ReportSection position_section(const Comparison& comparison) {
  ReportSection section{
      "By position in the document",
      fmt::format("{} of the targets at these positions, mean over the runs of a group.",
                  comparison.position_metric == CompareMetric::bits_per_byte ? "Bits per byte" : "Nats per token"),
      {{"position", true}},
      {},
      {},
      {}};
  for (size_t i = 0; i < comparison.groups.size(); ++i) section.columns.push_back({group_text(comparison, i)});
  for (const PositionRow& row : comparison.positions) {
    std::vector<std::string>& cells = section.rows.emplace_back();
    cells.push_back(fmt::format("{}..{}", row.begin, row.end - 1));
    for (const std::optional<Spread>& figure : row.groups) cells.push_back(figure ? number_text(figure->mean) : kNone);
  }
  return section;
}

ReportSection budget_section(const Comparison& comparison) {
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
    row.push_back(group_text(comparison, i));
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

ReportSection configuration_section(const Comparison& comparison) {
  ReportSection section{"What differs between the configurations", "", {{"key", true}}, {}, {}, {}};
  for (const RunGroup& group : comparison.groups) section.columns.push_back({group.letter, true});
  for (const DifferingKey& key : comparison.configuration) {
    std::vector<std::string>& row = section.rows.emplace_back();
    row.push_back(key.key);
    for (const std::string& value : key.values) row.push_back(value.empty() ? kNone : value);
  }
  return section;
}

}  // namespace

std::vector<ReportSection> figure_sections(const Comparison& comparison) {
  std::vector<ReportSection> sections{group_section(comparison)};
  if (!comparison.differences.empty()) sections.push_back(difference_section(comparison));
  if (!comparison.positions.empty()) sections.push_back(position_section(comparison));
  if (comparison.groups.size() > 1) sections.push_back(budget_section(comparison));
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
                              fmt::format("{}", evaluation.trained.tokens)});
      if (!run.evaluated_now) continue;
      section.remarks.push_back(
          fmt::format("{} had stored no evaluation of split {}, so it was evaluated now.", run.path, comparison.split));
    }
  }
  return section;
}

Report report_of(const Comparison& comparison) {
  const size_t groups = comparison.groups.size();
  const std::string of = groups == 1 ? "one configuration" : fmt::format("{} configurations", groups);
  Report report{fmt::format("{} runs of {}, split {}", comparison.runs.size(), of, comparison.split),
                comparison.warnings, figure_sections(comparison)};
  if (!comparison.configuration.empty()) report.sections.push_back(configuration_section(comparison));
  report.sections.push_back(run_section(comparison));
  return report;
}

}  // namespace quire
