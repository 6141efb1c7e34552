// A comparison as tables of text, for a terminal, for a page and for Markdown.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainers/compare/comparison.h"

namespace quire {

struct ReportColumn {
  std::string title;
  bool is_text = false;    // aligned to the left
  size_t max_columns = 0;  // longer cells lose their beginning on a terminal; 0: none does
};

// A difference and its interval, which a page draws beside the row; without an interval both ends are the difference.
struct ReportRange {
  double low = 0;
  double middle = 0;
  double high = 0;
};

struct ReportSection {
  std::string title;
  std::string note;  // one paragraph above the table; may be empty
  std::vector<ReportColumn> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::optional<ReportRange>> ranges;  // one per row, or none at all
  std::vector<std::string> remarks;                // paragraphs below the table
};

struct Report {
  std::string title;
  std::vector<std::string> warnings;
  std::vector<ReportSection> sections;
};

enum class ReportNames {
  lettered,  // "A window", where long names are cut and columns are narrow
  full,      // "window", where columns may be wide
};

Report report_of(const Comparison& comparison, ReportNames names = ReportNames::lettered);
// Parts of it: figures of groups, and the evaluations that they come from.
std::vector<ReportSection> figure_sections(const Comparison& comparison, ReportNames names = ReportNames::lettered);
ReportSection run_section(const Comparison& comparison);

// Lines of at most 80 columns, as far as words allow: a table that is wider becomes a paragraph for each row.
std::string to_text(const Report& report);

// Headings and tables for a page in Markdown.
std::string to_markdown(const Report& report);

// One page without scripts and without anything from elsewhere. It begins with kReportMark.
std::string to_html(const Report& report);
inline constexpr std::string_view kReportMark = "<!DOCTYPE html>\n<!-- a comparison of quire -->\n";

}  // namespace quire
