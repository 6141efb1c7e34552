// The verb `config` for any configuration struct:
//   void add_config(Verb& program) { add_config_verb(program, config_verb_for<RunConfig>()); }
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "trainers/cli/program.h"

namespace quire {

struct ConfigTexts {
  std::string full;
  std::string minimal;
};

struct ConfigVerb {
  // Finds errors that only show in the files that the configuration names; returns a note for a valid one, or nothing.
  std::function<std::string(const std::string& path, const std::vector<std::string>& overrides)> check;
  std::function<ConfigTexts(const std::string& path, const std::vector<std::string>& overrides)> load;
  std::function<std::vector<ConfigKey>()> keys;
  // Keys that have other names now, as a page; and the text of a file with the new names, with a line for each change
  // (none: it has them already).
  std::string replaced = {};
  std::function<std::string(const std::string& path, std::vector<std::string>& changes)> upgrade = {};
};

template <ConfigStructType T>
ConfigVerb config_verb_for() {
  return {[](const std::string&, const std::vector<std::string>&) { return std::string(); },
          [](const std::string& path, const std::vector<std::string>& overrides) {
            const T config = load_config<T>(path, overrides);
            return ConfigTexts{dump_saved_config(config), dump_config_minimal(config)};
          },
          [] { return list_config_keys<T>(); }};
}

void add_config_verb(Verb& program, ConfigVerb verb);

// Returns the keys that `requested` names: one key (an index may stand for N) or all keys of a section. Throws
// Error(config) when there is none.
std::vector<ConfigKey> find_config_keys(const std::vector<ConfigKey>& keys, const std::string& requested);

}  // namespace quire
