// A report for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "trainers/compare/report.h"

namespace quire {

namespace {

constexpr size_t kTextColumns = 80;

// Returns the number of characters of UTF-8 text.
size_t columns_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

// Returns the text without control characters: paths come from the file system.
std::string without_controls(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20U || c == 0x7FU; }, ' ');
  return text;
}

// Breaks text into lines between words; the first begins with `first` and the others with `indent`.
std::string wrapped(const std::string& text, const std::string& first, const std::string& indent) {
  std::string out;
  std::string line = first;
  bool begins = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    if (!begins && columns_of(line) + 1 + columns_of(word) > kTextColumns) {
      out += line + "\n";
      line = indent;
      begins = true;
    }
    line += (begins ? "" : " ") + word;
    begins = false;
  }
  return out + line + "\n";
}

// Returns the cell; a long one loses its beginning, since paths differ at their ends.
std::string cell_text(const std::string& cell, size_t max_columns) {
  const std::string text = without_controls(cell);
  if (max_columns == 0 || text.size() <= max_columns) return text;
  size_t begin = text.size() - max_columns + 2;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) ++begin;
  return ".." + text.substr(begin);
}

std::string padded(const std::string& text, size_t columns, bool left) {
  const std::string space(columns - std::min(columns, columns_of(text)), ' ');
  return left ? text + space : space + text;
}

std::string line_of(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                    const ReportSection& section) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += "  " + padded(cells[i], widths[i], section.columns[i].is_text);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string table_text(const ReportSection& section) {
  std::vector<std::vector<std::string>> rows{{}};
  for (const ReportColumn& column : section.columns) rows.front().push_back(column.title);
  std::vector<size_t> widths(section.columns.size());
  for (const std::vector<std::string>& row : section.rows) {
    std::vector<std::string>& cells = rows.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) cells.push_back(cell_text(row[i], section.columns[i].max_columns));
  }
  size_t total = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    for (const std::vector<std::string>& row : rows) widths[i] = std::max(widths[i], columns_of(row[i]));
    total += 2 + widths[i];
  }
  std::string text;
  if (total <= kTextColumns) {
    for (const std::vector<std::string>& row : rows) text += line_of(row, widths, section);
    return text;
  }
  for (const std::vector<std::string>& row : section.rows) {
    text += "  " + without_controls(row.front()) + "\n";
    for (size_t i = 1; i < row.size(); ++i) {
      text += wrapped(without_controls(row[i]), "    " + section.columns[i].title + ": ", "      ");
    }
  }
  return text;
}

}  // namespace

std::string to_text(const Report& report) {
  std::string text = report.title + "\n";
  for (const std::string& warning : report.warnings) text += wrapped(without_controls(warning), "warning: ", "  ");
  for (const ReportSection& section : report.sections) {
    text += "\n" + section.title + "\n";
    if (!section.note.empty()) text += wrapped(section.note, "  ", "  ");
    text += table_text(section);
    for (const std::string& remark : section.remarks) text += wrapped(without_controls(remark), "  ", "    ");
  }
  return text;
}

}  // namespace quire
