// A report for a page in Markdown.
#include <algorithm>

#include "trainers/compare/report.h"

namespace quire {

namespace {

// Returns a cell without characters that end it.
std::string markdown_cell(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20U || c == '|'; }, ' ');
  return text;
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += " " + markdown_cell(cell) + " |";
  return row + "\n";
}

}  // namespace

std::string to_markdown(const Report& report) {
  std::string text = "# " + report.title + "\n";
  for (const std::string& warning : report.warnings) text += "\nWarning: " + warning + "\n";
  for (const ReportSection& section : report.sections) {
    text += "\n## " + section.title + "\n\n";
    if (!section.note.empty()) text += section.note + "\n\n";
    std::vector<std::string> titles;
    for (const ReportColumn& column : section.columns) titles.push_back(column.title);
    text += markdown_row(titles) + "|";
    for (size_t i = 0; i < titles.size(); ++i) text += "---|";
    text += "\n";
    for (const std::vector<std::string>& row : section.rows) text += markdown_row(row);
    for (const std::string& remark : section.remarks) text += "\n" + remark + "\n";
  }
  return text;
}

}  // namespace quire
