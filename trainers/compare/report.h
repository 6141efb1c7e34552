// A comparison as tables of text, for a terminal and for a page.
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

Report report_of(const Comparison& comparison);
// Parts of it: figures of groups, and the evaluations that they come from.
std::vector<ReportSection> figure_sections(const Comparison& comparison);
ReportSection run_section(const Comparison& comparison);

// Lines of at most 80 columns, as far as words allow: a table that is wider becomes a paragraph for each row.
std::string to_text(const Report& report);

// One page without scripts and without anything from elsewhere. It begins with kReportMark.
std::string to_html(const Report& report);
inline constexpr std::string_view kReportMark = "<!DOCTYPE html>\n<!-- a comparison of quire -->\n";

}  // namespace quire
