#include "trainers/run/config.h"
#include "trainers/cli/config_verb.h"
#include "trainers/cli/verbs.h"

namespace quire {

void add_config(CLI::App& program) {
  add_config_verb(program, config_verb_for<RunConfig>());
}

}  // namespace quire
