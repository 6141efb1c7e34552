// The descriptor of MoBA (layers/mechanism/mechanism.h).
#include <algorithm>

#include "layers/mechanism/mechanism_list.h"
#include "layers/mixers/moba_heads.h"
#include "layers/model/surroundings.h"

namespace quire {

namespace {

const MobaConfig& options(const Place& place) {
  return place.options.get<MobaConfig>();
}

constexpr CompositionRule kRules[] = {
    {"position",
     "moba compares queries with means of keys, to which only rope or none can be applied before; use one "
     "of them",
     [](const Place& p) { return p.layer.position.kind != Position::rope && p.layer.position.kind != Position::none; }},
    {"dropout.attention", "moba has no dropout of probabilities; use 0",
     [](const Place& p) { return p.model.dropout.attention > 0; }},
};

int64_t reach(const Place& place, const TargetPlace& target) {
  const MobaConfig& moba = options(place);
  const int64_t begin = target.position - target.t;
  const int64_t before = moba.carries() ? std::min(begin, begin % moba.block + moba.carry.length * moba.block) : 0;
  if (moba.top_k > 1 && !moba.farthest()) return target.t + before;
  const int64_t chosen = moba.top_k > 1 ? *moba.farthest() * moba.block : 0;
  return std::min(target.t + before, target.position % moba.block + chosen);
}

StepFlops flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const MobaConfig& moba = options(place);
  const auto tokens = static_cast<double>(shape.rows * shape.subsequence);
  const auto e = static_cast<double>(model.width);
  const double inner = static_cast<double>(model.heads * model.size_of_head());
  const double key_inner = static_cast<double>(model.heads_of_keys() * model.size_of_head());
  const double blocks = static_cast<double>(shape.subsequence) / static_cast<double>(moba.block) / 2 +
                        static_cast<double>(moba.carry.length);
  const double seen = static_cast<double>(moba.block) * (static_cast<double>(moba.top_k) - 0.5);
  return {.learned = tokens * 2 * (2 * e * inner + 2 * e * key_inner + seen * 2 * inner),
          .forward = tokens * 2 * blocks * inner};
}

Promises promises(const Place& place) {
  const MobaConfig& moba = options(place);
  const bool exact = moba.carries() && !rounds(moba.carry.dtype);
  return {.split_invariant = exact,
          .full_attention = exact ? std::min(moba.top_k, *moba.farthest() + 1) * moba.block : 0};
}

}  // namespace

Mechanism moba_mixer() {
  return {
      .role = Role::mixer,
      .kind = "moba",
      .help = "a token reads its own block and the best of the blocks before it, found by their mean keys (MoBA)",
      .options = [] { return ConfigBox(MobaConfig{}); },
      .rules = kRules,
      .retrieves = true,
      .make_mixer = [](const Scope& scope, const Place& place, const Surroundings& around) -> std::unique_ptr<Part> {
        return std::make_unique<ProjectedHeads<MobaHeads>>(scope, place.model, options(place),
                                                           HeadShape::of(place.model), place.layer.position.kind,
                                                           place.layer.position.rope, around.tables);
      },
      .reach = reach,
      .flops = flops,
      .promises = promises};
}

}  // namespace quire
