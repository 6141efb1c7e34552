// The configuration of Infini-attention.
#pragma once

#include <algorithm>
#include <optional>

#include "core/config/config.h"

namespace quire {

enum class InfiniUpdate { linear, delta, none };
enum class InfiniEmptyGate { literal, local };
enum class InfiniGateKind { head, query };

template <>
struct EnumNames<InfiniUpdate> {
  static constexpr auto value = std::to_array<std::pair<InfiniUpdate, std::string_view>>(
      {{InfiniUpdate::linear, "linear"}, {InfiniUpdate::delta, "delta"}, {InfiniUpdate::none, "none"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the values of a block are added", "of each value, what the memory already recalls for its key is left out",
       "there is no memory and no gate: local attention alone, as a baseline"});
};
template <>
struct EnumNames<InfiniEmptyGate> {
  static constexpr auto value = std::to_array<std::pair<InfiniEmptyGate, std::string_view>>(
      {{InfiniEmptyGate::literal, "literal"}, {InfiniEmptyGate::local, "local"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"an empty memory gives zeros, so that the gate weakens local attention there, as published",
       "tokens with an empty memory receive local attention alone"});
};
template <>
struct EnumNames<InfiniGateKind> {
  static constexpr auto value = std::to_array<std::pair<InfiniGateKind, std::string_view>>(
      {{InfiniGateKind::head, "head"}, {InfiniGateKind::query, "query"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"a learned number per head, as published",
       "a product of the query with a learned vector, which begins at zero, is added to that number"});
};

struct InfiniGate {
  InfiniGateKind kind = InfiniGateKind::head;
  double init = 0;
  std::string_view inapplicable = {};  // why there is no gate

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind,
            {.help = "what the share of the memory in the output of a head depends on", .inapplicable = inapplicable});
    v.field("init", init,
            {.help = "initial value of the number: the share of the memory begins at sigmoid(init)",
             .min = -100,
             .max = 100,
             .inapplicable = inapplicable});
  }
};

struct InfiniConfig {
  int64_t block = 256;
  std::optional<int64_t> window;
  InfiniUpdate update = InfiniUpdate::linear;
  InfiniEmptyGate empty_gate = InfiniEmptyGate::literal;
  InfiniGate gate;
  std::optional<int64_t> bptt;
  double keep = 1;

  bool remembers() const { return update != InfiniUpdate::none; }
  // Tokens whose keys and values a row carries: those of a block that is not complete, and those of the window.
  int64_t carried() const { return std::max({int64_t{1}, block - 1, window.value_or(0)}); }

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("block", block,
            {.help = "tokens after which the memory is written; local attention sees those of its own block (a segment "
                     "of the publication)",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 20,
             .at_evaluation = true,
             .sizes_state = true,
             .meant = "segment segment_length segment_size chunk"});
    v.field("window", window,
            {.help = "local attention sees this many tokens before a token instead of the begun block; tokens of "
                     "complete blocks are then read twice, through the memory as well. none: the begun block",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true,
             .sizes_state = true});
    v.field("update", update, {.help = "what a complete block adds to the memory"});
    const std::string_view without = remembers() ? "" : "with update: none there is no memory";
    v.field("empty_gate", empty_gate,
            {.help = "the output of tokens for which nothing has been written yet", .inapplicable = without});
    gate.inapplicable = without;
    v.section("gate", gate, "the share of the memory in the output of a head");
    v.field("bptt", bptt,
            {.help = "the gradient through the memory is cut at every multiple of this many blocks of a document. With "
                     "1 no key and no value learns to be remembered. none: it flows through the whole subsequence",
             .unit = "blocks",
             .min = 1,
             .resumable = true,
             .inapplicable = without});
    v.field("keep", keep,
            {.help = "the memory is multiplied by this before a block is added; 1: nothing is forgotten, as published",
             .min = 0,
             .max = 1,
             .min_exclusive = true,
             .inapplicable = without});
  }
};

}  // namespace quire
