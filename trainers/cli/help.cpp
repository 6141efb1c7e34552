#include "trainers/cli/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

namespace quire {

namespace {

constexpr size_t kColumn = 30;  // the column where descriptions begin

// Returns the width of the terminal; without one $COLUMNS, or 80.
size_t page_width() {
  winsize size{};
  size_t width = 80;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    width = size.ws_col;
  } else if (const char* columns = std::getenv("COLUMNS")) {
    width = static_cast<size_t>(std::strtoul(columns, nullptr, 10));
  }
  return std::clamp<size_t>(width, kColumn + 20, 120);
}

// Wraps a line. The rest goes below the description, or gets the line's own indentation when there is no description. A
// command is continued in shell syntax.
std::string wrapped(const std::string& line, size_t width) {
  const size_t own = std::min(line.find_first_not_of(' '), line.size());
  const bool is_command = line.starts_with("  quire ") || line.starts_with("    --");
  const size_t indent = is_command ? 4 : own > 0 && line.size() > kColumn && line[kColumn - 1] == ' ' ? kColumn : own;
  const size_t room = is_command ? width - 2 : width;
  std::string text;
  std::string rest = line;
  while (rest.size() > width) {
    size_t cut = rest.rfind(' ', room);
    if (cut == std::string::npos || cut <= indent) cut = rest.find(' ', width);  // a word wider than the line
    if (cut == std::string::npos) break;
    text += rest.substr(0, cut) + (is_command ? " \\\n" : "\n");
    rest = std::string(indent, ' ') + rest.substr(cut + 1);
  }
  return text + rest;
}

std::string wrap_lines(const std::string& lines, size_t width) {
  std::string text;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    text += wrapped(lines.substr(begin, end - begin), width) + "\n";
    begin = end + 1;
  }
  return text;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kColumn); }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    const std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    return wrap_lines(help, page_width());
  }
};

}  // namespace

const char* const kExitCodes =
    "Exit codes: 0 done, 1 internal error, 2 configuration or usage, 3 data,\n"
    "  4 checkpoint, 5 non-finite values, 6 communication, 7 disk, 8 out of memory,\n"
    "  75 stopped and resumable";

std::string fit_to_terminal(const std::string& text) {
  return ::isatty(STDOUT_FILENO) == 1 ? wrap_lines(text, page_width()) : text;
}

std::shared_ptr<CLI::FormatterBase> make_help_formatter() {
  return std::make_shared<HelpFormatter>();
}

std::string verb_footer(const std::string& examples) {
  return "Example:\n  " + examples + "\n\n" + kExitCodes;
}

}  // namespace quire
