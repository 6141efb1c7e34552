// The texts of --help, which fit the terminal (elsewhere $COLUMNS, or 80 columns), and the exit codes.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class FormatterBase;
}

namespace quire {

std::shared_ptr<CLI::FormatterBase> make_help_formatter();

// What stands below the options of a verb: its examples, one a line, and the exit codes.
std::string verb_footer(const std::string& examples);

// Lines that are too long for the terminal go on with their own indentation; elsewhere they stay as they are.
std::string fit_to_terminal(const std::string& text);

extern const char* const kExitCodes;

}  // namespace quire
