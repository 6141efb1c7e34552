#include "trainers/run/config.h"
#include "trainers/cli/config_verb.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/run_directory.h"

namespace quire {

void add_config(Verb& program) {
  ConfigVerb verb = config_verb_for<RunConfig>();
  verb.load = [](const std::string& path, const std::vector<std::string>& overrides) {
    const auto config = load_config<RunConfig>(path, overrides);
    default_run_directory(config.run.name);  // quire train refuses what is no folder name
    return ConfigTexts{dump_config(config), dump_config_minimal(config)};
  };
  add_config_verb(program, std::move(verb));
}

}  // namespace quire
