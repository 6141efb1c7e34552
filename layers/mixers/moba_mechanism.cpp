// The descriptor of MoBA (layers/mechanism.h).
#include <algorithm>

#include "layers/mechanism_list.h"
#include "layers/mixers/moba_heads.h"
#include "layers/surroundings.h"

namespace quire {

namespace {

const MobaConfig& options(const Place& place) {
  return place.options.get<MobaConfig>();
}

constexpr CompositionRule kRules[] = {
    {"position",
     "moba compares queries with means of keys, to which only rope or none can be applied before; use one "
     "of them",
     [](const Place& p) { return p.layer.position != Position::rope && p.layer.position != Position::none; }},
    {"attention.cache", "moba stores blocks by itself; set cache.kind and cache.length to none",
     [](const Place& p) { return p.layer.attention.cache.kind != CacheKind::none; }},
    {"attention.window", "moba chooses what a token sees; set window to none and same_length to false",
     [](const Place& p) { return p.layer.attention.window.has_value() || p.layer.attention.same_length; }},
    {"attention.qk_norm", "moba attends with the queries and keys as they are projected; leave qk_norm out",
     [](const Place& p) { return p.layer.attention.qk_norm; }},
    {"attention.attend_self", "a token always sees itself in moba; leave attend_self at true",
     [](const Place& p) { return !p.layer.attention.attend_self; }},
    {"dropout.attention", "moba has no dropout of probabilities; use 0",
     [](const Place& p) { return p.model.dropout.attention > 0; }},
};

int64_t reach(const Place& place, const TargetPlace& target) {
  const MobaConfig& moba = options(place);
  const int64_t before = moba.carry ? target.position - target.t : 0;
  const int64_t in_block = target.position % moba.block;
  const int64_t chosen = moba.top_k > 1 ? moba.capacity * moba.block : 0;
  return std::min(target.t + before, in_block + chosen);
}

StepFlops flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const MobaConfig& moba = options(place);
  const auto tokens = static_cast<double>(shape.rows * shape.subsequence);
  const auto e = static_cast<double>(model.width);
  const double inner = static_cast<double>(model.heads * model.size_of_head());
  const double key_inner = static_cast<double>(model.heads_of_keys() * model.size_of_head());
  const double blocks = static_cast<double>(shape.subsequence) / static_cast<double>(moba.block) / 2 +
                        (moba.carry ? static_cast<double>(moba.capacity) : 0);
  const double seen = static_cast<double>(moba.block) * (static_cast<double>(moba.top_k) - 0.5);
  return {.learned = tokens * 2 * (2 * e * inner + 2 * e * key_inner + seen * 2 * inner),
          .forward = tokens * 2 * blocks * inner};
}

Promises promises(const Place& place) {
  const MobaConfig& moba = options(place);
  const bool exact = moba.carry && moba.dtype != StateType::bf16;
  return {.split_invariant = exact, .full_attention = exact ? std::min(moba.top_k, moba.capacity + 1) * moba.block : 0};
}

}  // namespace

Mechanism moba_mixer() {
  return {
      .role = Role::mixer,
      .kind = "moba",
      .help = "a token reads its own block and the best of the blocks before it, found by their mean keys (MoBA)",
      .options = [] { return ConfigBox(MobaConfig{}); },
      .rules = kRules,
      .make_mixer = [](const Scope& scope, const Place& place, const Surroundings& around) -> std::unique_ptr<Part> {
        return std::make_unique<ProjectedHeads<MobaHeads>>(scope, place.model, options(place),
                                                           HeadShape::of(place.model), place.layer.position,
                                                           place.layer.attention.rope, around.tables);
      },
      .reach = reach,
      .flops = flops,
      .promises = promises};
}

}  // namespace quire
