#include "trainers/cli/needle_report.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

std::string depth_name(const std::optional<double>& depth) {
  return depth ? fmt::format("{:.3g} %", 100 * *depth) : std::string("any");
}

// Returns the cells of a share: "96.0" and "86.5-98.9".
void add_share(std::vector<std::string>& row, double share, int64_t samples) {
  const ShareInterval interval = interval_of(share, samples);
  row.push_back(fmt::format("{:.1f}", 100 * share));
  row.push_back(fmt::format("{:.1f}-{:.1f}", 100 * interval.low, 100 * interval.high));
}

std::string table_of(const NeedleAnswers& answers, const std::string& what, double (NeedleCell::*share)() const) {
  const NeedleOptions& options = answers.options;
  std::string text = fmt::format("  {:<16}", what);
  for (const int64_t length : options.lengths) text += fmt::format("{:>8}", format_length(length));
  text += "\n";
  const size_t rows = std::max<size_t>(options.depths.size(), 1);
  for (size_t row = 0; row < rows; ++row) {
    text += options.depths.empty() ? fmt::format("  {:<16}", "any depth")
                                   : fmt::format("  {:<16}", "depth " + depth_name(options.depths[row]));
    for (size_t column = 0; column < options.lengths.size(); ++column) {
      text += fmt::format("{:>6.1f} %", 100 * (answers.result.cells[column * rows + row].*share)());
    }
    text += "\n";
  }
  return text;
}

}  // namespace

bool asks_questions(const std::vector<NeedleAnswers>& answers) {
  return answers.front().options.task.kind() == TaskKind::question;
}

int64_t tokens_read(const std::vector<NeedleAnswers>& answers) {
  int64_t tokens = 0;
  for (const NeedleAnswers& of : answers) tokens += of.result.tokens;
  return tokens;
}

double seconds_spent(const std::vector<NeedleAnswers>& answers) {
  double seconds = 0;
  for (const NeedleAnswers& of : answers) seconds += of.result.seconds;
  return seconds;
}

Report report_of(const std::vector<NeedleAnswers>& answers, const std::string& title) {
  const bool questions = asks_questions(answers);
  ReportSection section{
      .title = "Answers, in per cent",
      .note = questions ? "score: the published score of the generated reply; whole: whole answers, and tokens: tokens "
                          "of them, that are the most likely ones after the right ones before; 95 %: Wilson interval."
                        : "whole: whole answers, and token: the one that is published, that are the most likely ones "
                          "after the right ones before; 95 %: Wilson interval.",
      .columns = {{.title = questions ? "task" : "depth", .is_text = true}, {.title = "length"}},
      .rows = {},
      .ranges = {},
      .remarks = {}};
  const std::vector<std::string> titles = questions
                                              ? std::vector<std::string>{"score", "95 %", "whole", "95 %", "tokens"}
                                              : std::vector<std::string>{"whole", "95 %", "token", "95 %"};
  for (const std::string& column : titles) section.columns.push_back({.title = column});
  for (const NeedleAnswers& of : answers) {
    for (const NeedleCell& cell : of.result.cells) {
      std::vector<std::string>& row = section.rows.emplace_back();
      row = {questions ? *of.options.task.task : depth_name(cell.depth), format_length(cell.length)};
      if (questions) add_share(row, cell.score(), cell.samples);
      add_share(row, cell.exact_share(), cell.samples);
      if (questions) {
        row.push_back(fmt::format("{:.1f}", 100 * cell.right_share()));
      } else {
        add_share(row, cell.one_token_share(), cell.samples);
      }
    }
  }
  return {.title = title, .warnings = {}, .sections = {std::move(section)}};
}

std::string tables_of(const NeedleAnswers& answers) {
  return table_of(answers, "whole answer", &NeedleCell::exact_share) +
         table_of(answers, "one token", &NeedleCell::one_token_share);
}

HeatMap heat_map(const std::vector<NeedleAnswers>& answers, const std::string& title) {
  const bool questions = asks_questions(answers);
  HeatMap map{.title = title,
              .columns_title = "document length (tokens)",
              .rows_title = questions ? "task" : "depth of the needle",
              .columns = {},
              .rows = {},
              .values = {}};
  for (const int64_t length : answers.front().options.lengths) map.columns.push_back(format_length(length));
  for (const NeedleAnswers& of : answers) {
    const size_t rows = std::max<size_t>(of.options.depths.size(), 1);
    for (size_t row = 0; row < rows; ++row) {
      map.rows.push_back(questions ? *of.options.task.task : depth_name(of.result.cells[row].depth));
      for (size_t column = 0; column < map.columns.size(); ++column) {
        const NeedleCell& cell = of.result.cells[column * rows + row];
        map.values.push_back(questions ? cell.score() : cell.exact_share());
      }
    }
  }
  return map;
}

}  // namespace quire
