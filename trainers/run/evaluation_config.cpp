#include "trainers/run/evaluation_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace quire {

std::string_view what_may_differ_at_evaluation() {
  return "window, same_length, cache, data.subsequence, model.attention.xl.clamp, block, cache and reduction of "
         "model.attention.vq, what model.memory holds and finds";
}

bool may_differ_at_evaluation(const std::string& key) {
  for (const std::string_view prefix :
       {"data.subsequence", "model.attention.window", "model.attention.same_length", "model.attention.cache.",
        "model.attention.xl.clamp", "model.attention.vq.block", "model.attention.vq.cache",
        "model.attention.vq.reduction"}) {
    if (key.starts_with(prefix)) return true;
  }
  if (key.starts_with("model.memory.")) {
    for (const std::string_view suffix :
         {".size", ".top_k", ".closed_when_empty", ".least", ".write", ".search", ".place", ".dtype", ".stale.keep",
          ".inverted.lists", ".inverted.probes", ".inverted.period"}) {
      if (key.ends_with(suffix)) return true;
    }
  }
  if (!key.starts_with("model.layer_overrides.")) return false;
  for (const std::string_view part : {".attention.window", ".attention.same_length", ".attention.cache.",
                                      ".attention.vq.block", ".attention.vq.cache", ".attention.vq.reduction"}) {
    if (key.find(part) != std::string::npos) return true;
  }
  return false;
}

namespace {

// Layer overrides are compared by what they come to.
bool layers_differ_in_sight_only(const ModelConfig& before, const ModelConfig& after) {
  const std::vector<LayerConfig> a = before.layer_configs();
  const std::vector<LayerConfig> b = after.layer_configs();
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    for (const ConfigDifference& difference : diff_configs(a[i], b[i])) {
      if (!may_differ_at_evaluation(join_key("model", difference.key))) return false;
    }
  }
  return true;
}

}  // namespace

RunConfig evaluation_config(const RunConfig& config, const std::vector<std::string>& overrides,
                            const std::vector<std::string>& others) {
  RunConfig changed = with_overrides(config, settings_as_overrides(config.evaluate.set), "evaluate.set");
  changed = with_overrides(changed, overrides);
  for (const ConfigDifference& difference : diff_configs(config, changed)) {
    const bool may_differ = difference.key == "model.layer_overrides"
                                ? layers_differ_in_sight_only(config.model, changed.model)
                                : may_differ_at_evaluation(difference.key) ||
                                      std::find(others.begin(), others.end(), difference.key) != others.end();
    if (may_differ) continue;
    std::string allowed(what_may_differ_at_evaluation());
    for (const std::string& key : others) allowed += ", " + key;
    throw Error(ErrorKind::config, difference.key + ": cannot differ from the training run; what may: " + allowed);
  }
  return changed;
}

}  // namespace quire
