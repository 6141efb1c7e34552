// Contradictions between the sections of a run's configuration.
#include <fmt/format.h>

#include "trainers/optimizer/parameter_groups.h"
#include "trainers/run/config.h"
#include "trainers/run/evaluation_config.h"
#include "trainers/run/model.h"

namespace quire {

void RunConfig::check(ConfigChecker& c) const {
  if (data.pack == PackChoice::concat) {
    for (const LayerConfig& layer : model.layer_configs()) {
      c.require(layer.attention.mask_empty_cache, "data.pack",
                "concat cannot be combined with model.attention.mask_empty_cache: false, which needs an empty cache "
                "at the start of every document; use pad");
    }
  }
  c.require(!optimizer.relative_step || schedule.kind == ScheduleKind::constant, "schedule.kind",
            "optimizer.relative_step has its own course of the learning rate; use constant");
  if (!optimizer.groups.empty()) {
    // The model says its parameters' names without a corpus and without memory: the vocabulary changes only shapes.
    ParameterStore store;
    const Network declared(store, model, 2, DType::f32);
    const std::optional<GroupFault> fault = find_group_fault(store, optimizer);
    if (fault) c.require(false, join_key("optimizer", fault->key), fault->message);
  }
  for (size_t i = 0; i < evaluate.set.size(); ++i) {
    c.require(
        may_differ_at_evaluation(evaluate.set[i].first), "evaluate.set",
        evaluate.set[i].first + fmt::format(" cannot differ at evaluation; {} can", what_may_differ_at_evaluation()));
  }
}

}  // namespace quire
