#include "trainers/cli/help.h"

#include <CLI/CLI.hpp>

namespace quire {

namespace {

constexpr size_t kWidth = 100;
constexpr size_t kColumn = 30;  // where the meaning of an option begins

// A line that is too long goes on below its meaning, or with its own indentation when it has no meaning beside it.
std::string wrapped(const std::string& line) {
  const size_t own = std::min(line.find_first_not_of(' '), line.size());
  const size_t indent = own > 0 && line.size() > kColumn && line[kColumn - 1] == ' ' ? kColumn : own;
  std::string text;
  std::string rest = line;
  while (rest.size() > kWidth) {
    size_t cut = rest.rfind(' ', kWidth);
    if (cut == std::string::npos || cut <= indent) cut = rest.find(' ', kWidth);  // a word that fills the line
    if (cut == std::string::npos) break;
    text += rest.substr(0, cut) + "\n";
    rest = std::string(indent, ' ') + rest.substr(cut + 1);
  }
  return text + rest;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kColumn); }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    const std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    std::string text;
    for (size_t begin = 0; begin < help.size();) {
      const size_t end = std::min(help.find('\n', begin), help.size());
      text += wrapped(help.substr(begin, end - begin)) + "\n";
      begin = end + 1;
    }
    return text;
  }
};

}  // namespace

const char* const kExitCodes =
    "Exit codes: 0 done, 1 internal error, 2 configuration or usage, 3 data, 4 checkpoint,\n"
    "  5 non-finite values, 6 communication, 7 disk, 8 out of memory, 75 stopped and resumable";

std::shared_ptr<CLI::FormatterBase> make_help_formatter() {
  return std::make_shared<HelpFormatter>();
}

std::string verb_footer(const std::string& examples) {
  return "Example:\n  " + examples + "\n\n" + kExitCodes;
}

}  // namespace quire
