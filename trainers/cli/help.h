// The texts of --help, which fit the terminal ($COLUMNS, or 80 columns, where there is none), and the exit codes.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class FormatterBase;
}

namespace quire {

std::shared_ptr<CLI::FormatterBase> make_help_formatter();

// Returns the text below the options of a verb: its examples, one per line, and the exit codes.
std::string verb_footer(const std::string& examples);

// Wraps lines that are too long for the terminal, with their own indentation; without a terminal they stay as they are.
std::string fit_to_terminal(const std::string& text);

extern const char* const kExitCodes;

}  // namespace quire
