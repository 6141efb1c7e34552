// The texts of --help: lines of at most 100 columns, and the exit codes.
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

extern const char* const kExitCodes;

}  // namespace quire
