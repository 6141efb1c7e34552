#include <fmt/format.h>

#include "core/files/file_io.h"
#include "trainers/cli/config_verb.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/opened_run.h"
#include "trainers/run/run_directory.h"
#include "trainers/setup/config.h"
#include "trainers/setup/previous_form.h"

namespace quire {

namespace {

std::string upgraded_file(const std::string& path, std::vector<std::string>& changes) {
  load_yaml(path);  // says what is wrong with the file
  const std::string text = read_text_file(path);
  const std::optional<UpgradedText> upgraded = upgraded_configuration(text, path);
  if (!upgraded) return text;
  RunConfig read;
  read_config(StructRef<RunConfig>(read), parse_yaml(upgraded->text, path), "", ReadMode::keys);
  changes = upgraded->changes;
  // A run's own file that nobody has edited counts as such afterwards.
  const bool sealed = text.starts_with(kSavedConfiguration) && !was_edited(text);
  return sealed ? resealed(upgraded->text) : upgraded->text;
}

}  // namespace

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
  verb.replaced = replaced_keys_as_markdown(replaced_keys());
  verb.upgrade = upgraded_file;
  add_config_verb(program, std::move(verb));
}

}  // namespace quire
