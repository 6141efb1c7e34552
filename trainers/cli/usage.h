// What a mistaken command line most likely means.
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

// The arguments that are parsed: help is printed where no verb is given and for `help [VERB]`. Error(config) names a
// word that is no verb, which CLI11 would pass over until it misses one.
std::vector<std::string> usual_arguments(const CLI::App& program, int argc, const char* const* argv);

// One line about these arguments, which cannot be parsed. `keys` may become key.path=value arguments.
std::string describe_usage(const CLI::App& program, const std::vector<std::string>& words, const CLI::ParseError& error,
                           const ListKeys& keys);

}  // namespace quire
