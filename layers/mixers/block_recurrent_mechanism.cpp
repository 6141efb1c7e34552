// The descriptor of block-recurrent layers (layers/mechanism/mechanism.h).
#include <algorithm>

#include "layers/mechanism/mechanism_list.h"
#include "layers/mixers/block_recurrent.h"
#include "layers/mixers/block_recurrent_feedback.h"
#include "layers/model/surroundings.h"

namespace quire {

namespace {

const BlockRecurrentConfig& recurrent_options(const Place& place) {
  return place.options.get<BlockRecurrentConfig>();
}

bool has_layer(const ModelConfig& model, int64_t layer) {
  return layer >= -model.layers && layer < model.layers;
}

// Returns whether every layer has the kind, options and heads of the model: no override names them.
bool all_layers_are_alike(const ModelConfig& model) {
  return std::ranges::none_of(model.layer_overrides, [](const ConfigOverlay& overlay) {
    const auto names = [&](const char* key) { return overlay.changes.find(key) != nullptr; };
    return names("attention") || names("heads") || names("key_heads") || names("head_size");
  });
}

constexpr CompositionRule kRecurrentRules[] = {
    {"key_heads", "block_recurrent has keys for every head; leave key_heads out",
     [](const Place& p) { return p.model.heads_of_keys() != p.model.heads; }},
    {"position",
     "the keys of block_recurrent are normalised, which terms of xl are not made for; use t5, rope, alibi or "
     "none, or qk_norm: false",
     [](const Place& p) { return p.layer.position.kind == Position::xl && recurrent_options(p).qk_norm; }},
    {"attention.block_recurrent.feedback", "the model has no such layer",
     [](const Place& p) {
       const std::optional<int64_t> owner = recurrent_options(p).feedback;
       return owner.has_value() && !has_layer(p.model, *owner);
     }},
    {"attention.block_recurrent.feedback",
     "all layers read the states of one, window after window; give every layer the same kind and options, and the same "
     "heads, by model.attention and model.heads alone",
     [](const Place& p) { return recurrent_options(p).feedback && !all_layers_are_alike(p.model); }},
    {"attention.shifted_share", "layers that read window after window have no token before the window; use 0",
     [](const Place& p) { return recurrent_options(p).feedback && p.layer.attention.shifted_share > 0; }},
    {"stack.kind", "block_recurrent.feedback runs all layers itself; use the default",
     [](const Place& p) {
       return recurrent_options(p).feedback && p.model.stack.mechanism.kind != KindConfig(Role::stack).kind;
     }},
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
  const bool owns = !options.feedback || model.layer_index(*options.feedback) == place.index;
  return {.learned = 2 * tokens * (of_token + (owns ? of_state * states / window : 0))};
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
      .make_stack = [](const Scope& scope, const Place& place) -> std::unique_ptr<Stack> {
        if (!recurrent_options(place).feedback) return nullptr;
        return std::make_unique<FeedbackStack>(scope, place.model);
      },
      .local_attention = [](const Place& place) -> std::optional<LocalAttention> {
        const BlockRecurrentConfig& options = recurrent_options(place);
        return LocalAttention{.carried = options.window, .masks_empty = options.mask_empty, .takes_memories = false};
      },
      .alignment = [](const Place& place) -> int64_t {
        const BlockRecurrentConfig& options = recurrent_options(place);
        return options.feedback ? options.window : 1;
      },
      .reach = recurrent_reach,
      .flops = recurrent_flops,
      .promises = recurrent_promises};
}

}  // namespace quire
