// Texts that are installed beside the program, made from the description of its verbs: a manual page, and completion
// for bash.
#pragma once

#include <string>
#include <vector>

#include "core/config/config.h"

namespace CLI {
class App;
}

namespace quire {

// Returns the page quire(1), in the language of man(7).
std::string manual_page(const CLI::App& program, const std::string& version);

// Returns a script that completes verbs, options, files and, where a verb takes key.path=value, keys of the
// configuration.
std::string bash_completion(const CLI::App& program, const std::vector<ConfigKey>& keys);

}  // namespace quire
