// A report as a page.
#include "trainers/compare/report_html.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {

namespace {

constexpr const char* kPageStyle =
    R"(:root { color-scheme: light dark; --text: #1d2430; --soft: #5a6474; --page: #ffffff;
  --line: #d9dee6; --shade: #f4f6f9; --warn: #8a4b00; --warn-page: #fff6e5; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e8ee; --soft: #9aa5b5; --page: #14181f; --line: #323a46; --shade: #1c222b; --warn: #ffc266;
    --warn-page: #2e2413; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 3rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .25rem; overflow-wrap: anywhere; }
p { margin: .25rem 0 .6rem; color: var(--soft); overflow-wrap: anywhere; }
ul.warnings { margin: 0; padding: .6rem 1rem .6rem 2rem; border-left: 4px solid var(--warn);
  background: var(--warn-page); color: var(--warn); overflow-wrap: anywhere; }
.table { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap; background: var(--page); }
th { font-weight: 600; background: var(--shade); border-bottom: 1px solid var(--line); }
tr + tr td { border-top: 1px solid var(--line); }
th.text, td.text { text-align: left; }
th:first-child, td:first-child { position: sticky; left: 0; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 11rem; }
td.range { min-width: 9rem; width: 30%; }
.range div { position: relative; height: 1rem; }
.range i { position: absolute; top: 0; height: 1rem; }
.range .zero { border-left: 1px dashed var(--soft); }
.range .bar { top: .35rem; height: .3rem; border-radius: .15rem; background: var(--soft); }
.range .middle { top: .2rem; width: .6rem; height: .6rem; margin-left: -.3rem; border-radius: 50%;
  background: var(--text); }
@media (max-width: 40rem) {
  table { font-size: .85rem; }
  th, td { padding: .3rem .5rem; }
}
)";

std::string html_cell(const char* tag, const ReportColumn& column, const std::string& text) {
  constexpr size_t kLong = 32;  // longer texts may take several lines
  const char* const kind = !column.is_text ? "" : text.size() > kLong ? " class=\"text long\"" : " class=\"text\"";
  return fmt::format("<{0}{1}>{2}</{0}>", tag, kind, html_escaped(text));
}

// Draws the ranges of all rows on one scale, which contains 0.
class RangeCells {
 public:
  explicit RangeCells(const std::vector<std::optional<ReportRange>>& ranges) {
    for (const std::optional<ReportRange>& range : ranges) {
      if (!range) continue;
      low_ = std::min(low_, range->low);
      high_ = std::max(high_, range->high);
    }
  }

  std::string cell(const std::optional<ReportRange>& range) const {
    if (!range) return "<td></td>";
    return fmt::format(
        "<td class=\"range\"><div aria-hidden=\"true\"><i class=\"zero\" style=\"left:{:.2f}%\"></i>"
        "<i class=\"bar\" style=\"left:{:.2f}%;width:{:.2f}%\"></i><i class=\"middle\" style=\"left:{:.2f}%\"></i>"
        "</div></td>",
        place(0), place(range->low), place(range->high) - place(range->low), place(range->middle));
  }

 private:
  // In percent of the cell, with a margin for the mark in the middle of a range.
  double place(double value) const {
    constexpr double kMargin = 5;
    return high_ > low_ ? kMargin + (100 - 2 * kMargin) * (value - low_) / (high_ - low_) : 50;
  }

  double low_ = 0;
  double high_ = 0;
};

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += static_cast<unsigned char>(c) < 0x20U ? ' ' : c;
    }
  }
  return result;
}

std::string html_table(const ReportSection& section) {
  std::string html = "<div class=\"table\"><table>\n<thead><tr>";
  for (const ReportColumn& column : section.columns) html += html_cell("th", column, column.title);
  if (!section.ranges.empty()) html += "<th></th>";
  html += "</tr></thead>\n<tbody>\n";
  const RangeCells ranges(section.ranges);
  for (size_t row = 0; row < section.rows.size(); ++row) {
    html += "<tr>";
    for (size_t i = 0; i < section.columns.size(); ++i) {
      html += html_cell("td", section.columns[i], section.rows[row][i]);
    }
    if (!section.ranges.empty()) html += ranges.cell(section.ranges[row]);
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table></div>\n";
}

std::string html_head(const std::string& title) {
  return fmt::format(
      "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n<style>\n{}</style>\n",
      html_escaped(title), kPageStyle);
}

std::string html_warnings(const std::vector<std::string>& warnings) {
  if (warnings.empty()) return "";
  std::string html = "<ul class=\"warnings\">\n";
  for (const std::string& warning : warnings) html += "<li>" + html_escaped(warning) + "</li>\n";
  return html + "</ul>\n";
}

std::string html_section(const ReportSection& section) {
  std::string html = "<h2>" + html_escaped(section.title) + "</h2>\n";
  if (!section.note.empty()) html += "<p>" + html_escaped(section.note) + "</p>\n";
  html += html_table(section);
  for (const std::string& remark : section.remarks) html += "<p>" + html_escaped(remark) + "</p>\n";
  return html;
}

std::string to_html(const Report& report) {
  std::string html(kReportMark);
  html += html_head("quire compare: " + report.title) + "</head>\n<body>\n";
  html += "<h1>" + html_escaped(report.title) + "</h1>\n" + html_warnings(report.warnings);
  for (const ReportSection& section : report.sections) html += html_section(section);
  return html + "</body>\n</html>\n";
}

}  // namespace quire
