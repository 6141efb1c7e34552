// The configuration of a block-recurrent layer.
#pragma once

#include <optional>

#include "core/config/config.h"

namespace quire {

enum class RecurrentGate { residual, fixed, full, lstm };
enum class RecurrentUpdate { skip, dual, single };

template <>
struct EnumNames<RecurrentGate> {
  static constexpr auto value =
      std::to_array<std::pair<RecurrentGate, std::string_view>>({{RecurrentGate::residual, "residual"},
                                                                 {RecurrentGate::fixed, "fixed"},
                                                                 {RecurrentGate::full, "full"},
                                                                 {RecurrentGate::lstm, "lstm"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"what the states read is added to them", "a learned share per feature keeps what was there",
       "the share depends on what was read",
       "shares of the old and the new that depend on what was read, as in an LSTM"});
};
template <>
struct EnumNames<RecurrentUpdate> {
  static constexpr auto value = std::to_array<std::pair<RecurrentUpdate, std::string_view>>(
      {{RecurrentUpdate::skip, "skip"}, {RecurrentUpdate::dual, "dual"}, {RecurrentUpdate::single, "single"}});
  static constexpr auto help =
      std::to_array<std::string_view>({"a gate behind the attention of the states, and no feed-forward layer",
                                       "a gate behind their attention and one behind their feed-forward layer",
                                       "one gate, behind a feed-forward layer that reads their attention"});
};

struct BlockRecurrentConfig {
  int64_t window = 512;
  int64_t states = 512;
  RecurrentGate gate = RecurrentGate::fixed;
  double gate_init = 0;
  RecurrentUpdate update = RecurrentUpdate::skip;
  bool qk_norm = true;
  bool attend_self = false;
  bool previous_window = true;
  bool mask_empty = true;
  std::optional<int64_t> feedback;
  std::optional<int64_t> bptt;

  bool operator==(const BlockRecurrentConfig&) const = default;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field(
        "window", window,
        {.help = "a token sees this many tokens before it; after as many tokens of a document the states are updated",
         .unit = "tokens",
         .min = 1,
         .max = 1 << 20,
         .at_evaluation = true,
         .sizes_state = true,
         .meant = "block block_size window_length"});
    v.field("states", states,
            {.help = "number of state vectors, each of the width of the model",
             .min = 1,
             .max = 1 << 20,
             .meant = "num_states num_state_vectors"});
    v.field("gate", gate, {.help = "how the states take up what they read"});
    v.field(
        "gate_init", gate_init,
        {.help = "initial mean of the gate's biases: with gate: fixed a state keeps the share sigmoid(gate_init) in "
                 "each window, half of it for one window at 0 and for 69 at 4.6",
         .min = -100,
         .max = 100,
         .inapplicable = gate == RecurrentGate::residual ? "gate: residual has no bias" : ""});
    v.field("update", update, {.help = "what stands between the attention of the states and their next values"});
    v.field(
        "qk_norm", qk_norm,
        {.help = "queries and keys of tokens and states are divided by their lengths and scaled by a learned number "
                 "per head, as published"});
    v.field("attend_self", attend_self, {.help = "a token sees itself, too"});
    v.field("previous_window", previous_window,
            {.help = "the states read the window before theirs as well, as published; false: their own alone"});
    v.field("mask_empty", mask_empty,
            {.help = "the window before a document's first one is not seen; false: tokens and states see zero keys "
                     "and values there, as in the published code, which needs data.pack: pad"});
    v.field("feedback", feedback,
            {.help = "the layer that has states, which the tokens of all layers read as they were before a token's "
                     "window; all layers then have these options, and the model reads window after window. "
                     "Negative numbers count from the last layer. none: a layer has states of its own",
             .min = -10000,
             .max = 10000});
    v.field(
        "bptt", bptt,
        {.help = "the gradient through the states is cut at every multiple of this many windows of a document. With "
                 "as many windows as a subsequence has, or 1, nothing learns to be remembered. none: it flows "
                 "through the whole subsequence",
         .unit = "windows",
         .min = 1,
         .resumable = true});
  }
};

}  // namespace quire
