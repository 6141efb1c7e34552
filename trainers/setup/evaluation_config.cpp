#include "trainers/setup/evaluation_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace quire {

bool may_differ_at_evaluation(const std::string& key) {
  // List entries have numbers in a configuration, and N in the list of keys.
  std::string pattern;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    const std::string part = key.substr(begin, end - begin);
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    pattern = join_key(pattern, number ? "N" : part);
    begin = end + 1;
  }
  // Layer overrides change keys of the layer.
  constexpr std::string_view kOverride = "model.layer_overrides.N.";
  if (pattern.starts_with(kOverride)) pattern = "model." + pattern.substr(kOverride.size());
  const std::vector<ConfigKey> keys = list_config_keys<RunConfig>();
  return std::any_of(keys.begin(), keys.end(),
                     [&](const ConfigKey& listed) { return listed.at_evaluation && listed.key == pattern; });
}

namespace {

// Compares layer overrides by the layer configurations that result from them.
bool layers_may_differ(const ModelConfig& before, const ModelConfig& after) {
  const std::vector<LayerConfig> a = before.layer_configs();
  const std::vector<LayerConfig> b = after.layer_configs();
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    for (const ConfigDifference& difference : diff_configs(a[i], b[i])) {
      if (!difference.at_evaluation) return false;
    }
  }
  return true;
}

}  // namespace

RunConfig evaluation_config(const RunConfig& config, const std::vector<std::string>& overrides,
                            const std::vector<std::string>& others) {
  // Every document is read in its own row, so the rules for packed rows do not apply.
  RunConfig base = config;
  base.data.pack = Pack::pad;
  RunConfig changed = with_overrides(base, settings_as_overrides(config.evaluate.set), "evaluate.set");
  changed = with_overrides(changed, overrides);
  for (const ConfigDifference& difference : diff_configs(base, changed)) {
    const bool may_differ =
        difference.key == "model.layer_overrides"
            ? layers_may_differ(config.model, changed.model)
            : difference.at_evaluation || std::find(others.begin(), others.end(), difference.key) != others.end();
    if (may_differ) continue;
    std::string allowed(kMayDiffer);
    for (const std::string& key : others) allowed += ", " + key;
    throw Error(ErrorKind::config, difference.key + ": cannot differ from the training run; what may: " + allowed);
  }
  return changed;
}

}  // namespace quire
