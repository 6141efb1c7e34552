// The descriptor of the gated delta rule (layers/mechanism/mechanism.h).
#include "layers/mechanism/mechanism_list.h"
#include "layers/mixers/delta_layer.h"
#include "layers/model/surroundings.h"

namespace quire {

namespace {

const DeltaConfig& delta_options(const Place& place) {
  return place.options.get<DeltaConfig>();
}

constexpr CompositionRule kDeltaRules[] = {
    {"position",
     "delta has no positions: its decay tells tokens apart by age. Use position: {kind: none} for its layers",
     [](const Place& p) { return p.layer.position.kind != Position::none; }},
    {"dropout.attention", "delta has no attention probabilities to drop; use dropout.residual",
     [](const Place& p) { return p.model.dropout.attention > 0; }},
};

StepFlops delta_flops(const Place& place, const StepShape& shape) {
  const DeltaConfig& delta = delta_options(place);
  const DeltaShape s = delta_shape(place.model, delta);
  const auto e = static_cast<double>(place.model.width), rank = static_cast<double>(delta.rank.value_or(s.value));
  const auto keys = static_cast<double>(s.key_heads * s.key), values = static_cast<double>(s.heads * s.value);
  const auto heads = static_cast<double>(s.heads), all_keys = static_cast<double>(s.heads * s.key);
  const bool by_feature = delta.decays_by_feature(), apart = delta.gates == DeltaGates::gdn2;
  double products = e * (2 * keys + values) + values * e;
  products += by_feature ? rank * (e + all_keys) : e * heads;
  products += apart ? e * (all_keys + values) : e * heads;
  if (delta.output() != DeltaOutputGate::none) products += by_feature ? rank * (e + values) : e * values;
  products += static_cast<double>(delta.conv) * (2 * keys + values);
  const double rule = 7 * static_cast<double>(s.key) * values;
  return {.learned = static_cast<double>(shape.rows * shape.subsequence) * (2 * products + rule)};
}

int64_t delta_reach(const Place&, const TargetPlace& target) {
  return target.position;
}

}  // namespace

Mechanism delta_mixer() {
  return {.role = Role::mixer,
          .kind = "delta",
          .help =
              "a matrix per head that decays, and learns what follows a key by the delta rule (Gated DeltaNet, Kimi "
              "Delta Attention)",
          .options = [] { return ConfigBox(DeltaConfig{}); },
          .rules = kDeltaRules,
          .make_mixer = [](const Scope& scope, const Place& place, const Surroundings&) -> std::unique_ptr<Part> {
            return std::make_unique<DeltaLayer>(scope, place);
          },
          .reach = delta_reach,
          .flops = delta_flops};
}

}  // namespace quire
