#include "trainers/config.h"
#include "core/error.h"

namespace quire {

namespace {

// What may differ between training and evaluation without being another model.
bool may_differ_at_evaluation(const std::string& key) {
  for (const std::string_view prefix : {"data.subsequence", "model.attention.window", "model.attention.cache.",
                                        "model.attention.xl.clamp", "evaluate.", "run.threads", "data.corpus"}) {
    if (key.starts_with(prefix)) return true;
  }
  // layer_overrides.N.attention.window and .cache
  return key.starts_with("model.layer_overrides.") &&
         (key.find(".attention.window") != std::string::npos || key.find(".attention.cache.") != std::string::npos);
}

}  // namespace

void RunConfig::check(ConfigChecker& c) const {
  if (data.pack == PackChoice::concat) {
    for (const LayerConfig& layer : model.layer_configs()) {
      c.require(layer.attention.mask_empty_cache, "data.pack",
                "concat cannot be combined with model.attention.mask_empty_cache: false, which needs an empty cache "
                "at the start of every document; use pad");
    }
  }
  for (size_t i = 0; i < evaluate.set.size(); ++i) {
    c.require(may_differ_at_evaluation(evaluate.set[i].first), "evaluate.set",
              evaluate.set[i].first +
                  " cannot differ at evaluation; window, cache, data.subsequence and model.attention.xl.clamp can");
  }
}

RunConfig evaluation_config(const RunConfig& config, const std::vector<std::string>& overrides) {
  RunConfig changed = with_overrides(config, settings_as_overrides(config.evaluate.set), "evaluate.set");
  changed = with_overrides(changed, overrides);
  RunConfig before = config;
  for (const ConfigDifference& difference : diff_configs(before, changed)) {
    if (!may_differ_at_evaluation(difference.key)) {
      throw Error(ErrorKind::config, difference.key +
                                         ": cannot differ from the trained model; window, cache, data.subsequence, "
                                         "data.corpus and evaluate.* can");
    }
  }
  return changed;
}

}  // namespace quire
