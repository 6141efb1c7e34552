#include <fmt/format.h>

#include "trainers/cli/config_verb.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/opened_run.h"
#include "trainers/run/run_directory.h"
#include "trainers/setup/config.h"

namespace quire {

void add_config(Verb& program) {
  ConfigVerb verb = config_verb_for<RunConfig>();
  verb.load = [](const std::string& path, const std::vector<std::string>& overrides) {
    const auto config = configuration_of(path, overrides);
    default_run_directory(config.run.name);  // throws, as quire train does, for a name that is no folder name
    return ConfigTexts{dump_config(config), dump_config_minimal(config)};
  };
  verb.check = [](const std::string& path, const std::vector<std::string>& overrides) {
    const RunLook look = look_at_run(configuration_of(path, overrides));
    return fmt::format("; not looked at: {}", fmt::join(look.not_looked_at, ", "));
  };
  add_config_verb(program, std::move(verb));
}

}  // namespace quire
