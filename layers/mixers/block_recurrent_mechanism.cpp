// The descriptor of block-recurrent layers (layers/mechanism/mechanism.h).
#include <algorithm>

#include "layers/mechanism/mechanism_list.h"
#include "layers/mixers/block_recurrent.h"
#include "layers/model/surroundings.h"

namespace quire {

namespace {

const BlockRecurrentConfig& recurrent_options(const Place& place) {
  return place.options.get<BlockRecurrentConfig>();
}

constexpr CompositionRule kRecurrentRules[] = {
    {"key_heads", "block_recurrent has keys for every head; leave key_heads out",
     [](const Place& p) { return p.model.heads_of_keys() != p.model.heads; }},
    {"position",
     "the keys of block_recurrent are normalised, which terms of xl are not made for; use t5, rope, alibi or "
     "none, or qk_norm: false",
     [](const Place& p) { return p.layer.position.kind == Position::xl && recurrent_options(p).qk_norm; }},
};

StepFlops recurrent_flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const BlockRecurrentConfig& options = recurrent_options(place);
  const auto tokens = static_cast<double>(shape.rows * shape.subsequence);
  const auto e = static_cast<double>(model.width), inner = static_cast<double>(model.heads * model.size_of_head());
  const auto window = static_cast<double>(options.window), states = static_cast<double>(options.states);
  const auto hidden = static_cast<double>(model.mlp.hidden);
  const double terms = place.layer.position.kind == Position::xl ? 3 : 2;
  const double of_token = 4 * e * inner + 2 * inner * e + terms * (window + 1) * inner + 2 * states * inner;
  double of_state = 4 * e * inner + 2 * (states + (options.previous_window ? 2 : 1) * window) * inner;
  if (options.update != RecurrentUpdate::single) of_state += 2 * inner * e;
  if (options.update == RecurrentUpdate::dual) of_state += 2 * e * hidden;
  if (options.update == RecurrentUpdate::single) of_state += (2 * inner + e) * hidden;
  return {.learned = 2 * tokens * (of_token + of_state * states / window)};
}

int64_t recurrent_reach(const Place&, const TargetPlace& target) {
  return target.position;
}

Promises recurrent_promises(const Place& place) {
  return {.exact_gradient = !recurrent_options(place).bptt, .split_invariant = true};
}

}  // namespace

Mechanism block_recurrent_mixer() {
  return {
      .role = Role::mixer,
      .kind = "block_recurrent",
      .help =
          "a sliding window, and state vectors that tokens read and that read the tokens once a window "
          "(Block-Recurrent Transformer)",
      .options = [] { return ConfigBox(BlockRecurrentConfig{}); },
      .rules = kRecurrentRules,
      .make_mixer = [](const Scope& scope, const Place& place, const Surroundings& around) -> std::unique_ptr<Part> {
        return std::make_unique<BlockRecurrent>(scope, place, around.tables);
      },
      .reach = recurrent_reach,
      .flops = recurrent_flops,
      .promises = recurrent_promises};
}

}  // namespace quire
