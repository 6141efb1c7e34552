// Explains mistaken command lines.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/config.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace quire {

using ListKeys = std::function<std::vector<ConfigKey>()>;

// Returns the arguments to parse: they ask for help where no verb is given and for `help [VERB]`. Throws Error(config)
// that names a word that is no verb; CLI11 would skip it and report the missing verb instead.
std::vector<std::string> usual_arguments(const CLI::App& program, int argc, const char* const* argv);

// Returns one line about arguments that cannot be parsed. `keys` may become key.path=value arguments.
std::string describe_usage(const CLI::App& program, const std::vector<std::string>& words, const CLI::ParseError& error,
                           const ListKeys& keys);

}  // namespace quire
