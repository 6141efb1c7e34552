// The options of a kNN memory.
#pragma once

#include "layers/state/carry_config.h"

namespace quire {

enum class KnnCombine { gate, content_gate, joint, add, stop_forward };
enum class KnnWrite { produce, evict, never };
enum class KnnSearchKind { exact, bucketed, inverted };

template <>
struct EnumNames<KnnCombine> {
  static constexpr auto value =
      std::to_array<std::pair<KnnCombine, std::string_view>>({{KnnCombine::gate, "gate"},
                                                              {KnnCombine::content_gate, "content_gate"},
                                                              {KnnCombine::joint, "joint"},
                                                              {KnnCombine::add, "add"},
                                                              {KnnCombine::stop_forward, "stop_forward"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"a learned share per head (Memorizing Transformer)",
       "a share per head and token: a projection of the layer's input, with weights that begin at zero, is added to "
       "the learned gate",
       "one distribution over entries and local keys", "the sum of both",
       "the forward pass uses retrieved values alone, and the gradient goes to local attention alone, as published"});
};
template <>
struct EnumNames<KnnWrite> {
  static constexpr auto value = std::to_array<std::pair<KnnWrite, std::string_view>>(
      {{KnnWrite::produce, "produce"}, {KnnWrite::evict, "evict"}, {KnnWrite::never, "never"}});
  static constexpr auto help = std::to_array<std::string_view>({"at the end of the step that has made them",
                                                                "when they leave the cache of the layer",
                                                                "memory is only read; a new run cannot begin with it"});
};
template <>
struct EnumNames<KnnSearchKind> {
  static constexpr auto value = std::to_array<std::pair<KnnSearchKind, std::string_view>>(
      {{KnnSearchKind::exact, "exact"}, {KnnSearchKind::bucketed, "bucketed"}, {KnnSearchKind::inverted, "inverted"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the top_k entries with the largest products", "the best entry of each of top_k buckets, as published",
       "an inverted file (FAISS), for very large memories on the CPU: only the groups of entries that are nearest to a "
       "query are searched"});
};
struct StaleConfig {
  std::optional<int64_t> keep;
  double refresh = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("keep", keep,
            {.help = "entries that were made more than this many steps ago are not retrieved; none: all entries are",
             .unit = "steps",
             .min = 1,
             .resumable = true,
             .at_evaluation = true});
    v.field(
        "refresh", refresh,
        {.help = "share of a row's entries that each training step projects again with the current weights: those of "
                 "the oldest projection that the step does not drop. Memory then also holds the layer's inputs",
         .min = 0,
         .max = 1});
  }
};

struct InvertedConfig {
  int64_t lists = 1024;
  int64_t probes = 32;
  int64_t period = 16384;
  std::string_view inapplicable = {};  // why nothing is searched so

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("lists", lists,
            {.help = "number of groups; fewer while there are less than 39 entries per group",
             .min = 1,
             .max = 1 << 20,
             .at_evaluation = true,
             .inapplicable = inapplicable});
    v.field("probes", probes,
            {.help = "number of groups that a query searches",
             .min = 1,
             .max = 1 << 20,
             .at_evaluation = true,
             .inapplicable = inapplicable});
    v.field("period", period,
            {.help = "the groups are learned anew each time this many entries have been written; before the first time "
                     "the search is exact",
             .unit = "entries",
             .min = 1,
             .max = 1 << 28,
             .at_evaluation = true,
             .inapplicable = inapplicable});
  }
};

struct KnnCarry {
  int64_t length = 8192;
  LogPlace place = LogPlace::device;
  StateType dtype = StateType::automatic;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field(
        "length", length,
        {.help = "number of tokens whose keys and values a row holds, for each key head; when it is full, the oldest "
                 "are dropped",
         .unit = "tokens",
         .min = 1,
         .max = 1 << 28,
         .at_evaluation = true,
         .sizes_state = true});
    v.field("place", place, {.help = "where memory lies", .at_evaluation = true});
    v.field("dtype", dtype,
            {.help = "number type of stored entries; auto: the precision of the run. int8 and fp8 (E4M3) have one "
                     "scale per vector",
             .at_evaluation = true,
             .sizes_state = true});
  }
};

struct KnnConfig {
  KnnCarry carry;
  int64_t top_k = 32;
  KnnCombine combine = KnnCombine::gate;
  double gate = 0;
  bool closed_when_empty = false;
  int64_t least = 0;
  KnnWrite write = KnnWrite::produce;
  int64_t stride = 1;
  KnnSearchKind search = KnnSearchKind::exact;
  InvertedConfig inverted;
  StaleConfig stale;

  bool is_gated() const { return combine == KnnCombine::gate || combine == KnnCombine::content_gate; }

  template <class Visitor>
  void fields(Visitor& v) {
    v.section("carry", carry, "what a row holds");
    v.field("top_k", top_k,
            {.help = "number of entries that a query retrieves",
             .unit = "entries",
             .min = 1,
             .max = 1024,
             .at_evaluation = true});
    v.field("combine", combine, {.help = "how retrieved values are combined with local attention"});
    v.field("gate", gate,
            {.help = "initial value of the gate (combine: gate, content_gate): the share of memory in a head begins at "
                     "sigmoid(gate)",
             .min = -100,
             .max = 100});
    v.field("closed_when_empty", closed_when_empty,
            {.help = "a query that retrieves nothing takes all of local attention (combine: gate, content_gate); "
                     "false: memory's share is lost, as published",
             .at_evaluation = true});
    v.field("least", least,
            {.help = "a row's memory is not read while it holds fewer entries than this",
             .unit = "entries",
             .min = 0,
             .at_evaluation = true});
    v.field("write", write, {.help = "when keys and values enter memory", .resumable = true, .at_evaluation = true});
    v.field("stride", stride,
            {.help = "every stride-th token of a document enters memory, which then reaches stride times farther back",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 20,
             .resumable = true});
    v.field("search", search, {.help = "how entries are found", .at_evaluation = true});
    inverted.inapplicable = search == KnnSearchKind::inverted ? "" : "search is not inverted";
    v.section("inverted", inverted, "options of search: inverted");
    v.section("stale", stale, "keys and values that were made with earlier weights");
  }
  void check(ConfigChecker& c) const {
    c.require(is_gated() || gate == 0, "gate", "only combine: gate and content_gate have one");
    c.require(is_gated() || !closed_when_empty, "closed_when_empty", "only combine: gate and content_gate can close");
    c.require(!stale.keep || stale.refresh == 0, "stale.keep",
              "refreshed entries are no longer in the order of their age; use keep or refresh");
    c.require(stale.refresh == 0 || write != KnnWrite::evict, "stale.refresh",
              "needs the inputs of entries, which the cache does not carry; use write: produce");
    c.require(stride == 1 || write != KnnWrite::never, "stride",
              "says which tokens enter memory, and with write: never none do; set it to 1");
    c.require(search != KnnSearchKind::bucketed || carry.length % top_k == 0, "carry.length",
              "bucketed search needs a length that is a multiple of top_k");
    if (search == KnnSearchKind::inverted) {
      c.require(!stale.keep && stale.refresh == 0, "search",
                "inverted goes with entries that stay as they were written; leave stale.keep and stale.refresh out");
      c.require(inverted.period < carry.length, "inverted.period",
                "must be below carry.length: the groups would never be learned");
      c.require(carry.place == LogPlace::device, "carry.place",
                "search: inverted reads keys with carry.place: device alone; leave it out");
      c.require(carry.dtype != StateType::int8 && carry.dtype != StateType::fp8, "carry.dtype",
                "search: inverted reads keys as f32 or bf16; use one of them, or auto");
    }
    c.require(least <= carry.length, "least", "is more than carry.length: memory would never be read");
  }
};

}  // namespace quire
