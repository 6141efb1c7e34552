// The descriptor of HiLS attention (layers/mechanism/mechanism.h).
#include <algorithm>

#include "layers/mechanism/mechanism_list.h"
#include "layers/mixers/hils_layer.h"
#include "layers/model/surroundings.h"

namespace quire {

namespace {

const HilsConfig& hils_options(const Place& place) {
  return place.options.get<HilsConfig>();
}

constexpr CompositionRule kHilsRules[] = {
    {"position", "hils rotates summaries of keys, to which only rope or none can be applied; use one of them",
     [](const Place& p) { return p.layer.position.kind != Position::rope && p.layer.position.kind != Position::none; }},
    {"attention.hils.rope_length", "only rotary positions have one; use position.kind: rope or leave it out",
     [](const Place& p) { return p.layer.position.kind == Position::none && hils_options(p).rope_length.has_value(); }},
    {"dropout.attention", "hils has no dropout of probabilities; use 0",
     [](const Place& p) { return p.model.dropout.attention > 0; }},
};

int64_t hils_reach(const Place& place, const TargetPlace& target) {
  const HilsConfig& hils = hils_options(place);
  const int64_t oldest = std::max<int64_t>(0, target.position / hils.chunk - hils.capacity()) * hils.chunk;
  return target.position - (hils.chooses() ? oldest : hils.window_begin(target.position));
}

StepFlops hils_flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const HilsConfig& hils = hils_options(place);
  const auto e = static_cast<double>(model.width), size = static_cast<double>(model.size_of_head());
  const double inner = static_cast<double>(model.heads) * size;
  const double key_inner = static_cast<double>(model.heads_of_keys()) * size;
  const auto chunk = static_cast<double>(hils.chunk), regular = static_cast<double>(hils.regular());
  double projected = 2 * e * inner + 2 * e * key_inner;
  double seen = static_cast<double>(hils.window) + chunk / 2, scored = 0;
  if (hils.has_score_query()) {
    const double rank = static_cast<double>(hils.rank.value_or(model.size_of_head()));
    projected += hils.score_query == HilsScoreQuery::full ? e * inner : rank * (e + inner);
  }
  if (hils.chooses()) {
    const double candidates = static_cast<double>(shape.subsequence) / chunk / 2 + static_cast<double>(hils.capacity());
    seen += static_cast<double>(hils.top_k) * regular;
    scored = candidates * (hils.summary == HilsSummary::exact ? regular : 1) + (hils.asks() ? 2 : 0);
  }
  const auto tokens = static_cast<double>(shape.rows * shape.subsequence);
  return {.learned = tokens * 2 * (projected + 2 * seen * inner + scored * inner)};
}

}  // namespace

Mechanism hils_mixer() {
  return {
      .role = Role::mixer,
      .kind = "hils",
      .help =
          "a window, and chunks of the whole document that are chosen and weighed by learned summaries (HiLS "
          "attention)",
      .options = [] { return ConfigBox(HilsConfig{}); },
      .rules = kHilsRules,
      .retrieves = true,
      .make_mixer = [](const Scope& scope, const Place& place, const Surroundings& around) -> std::unique_ptr<Part> {
        return std::make_unique<HilsLayer>(scope, place, around.tables);
      },
      .insertion = [](const Place& place) { return Insertion{.period = hils_options(place).regular(), .ids = 1}; },
      .grain = [](const Place& place) { return hils_options(place).chunk; },
      .reach = hils_reach,
      .flops = hils_flops,
      .promises =
          [](const Place& place) {
            return Promises{.split_invariant =
                                hils_options(place).window_only || !rounds(hils_options(place).carry.dtype)};
          }};
}

}  // namespace quire
