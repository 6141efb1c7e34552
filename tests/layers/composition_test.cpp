#include "layers/composition.h"

#include <gtest/gtest.h>

#include <set>

#include "layers/mechanism_registry.h"
#include "tests/support/expect_error.h"
#include "tests/support/trivial_memories.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

RunConfig parse(const std::vector<std::string>& settings) {
  return parse_config<RunConfig>("model: {width: 8, heads: 2, layers: 2}\n", "run.yaml", settings);
}

struct Refusal {
  std::vector<std::string> settings;
  std::string key;
  std::string message;
};

const std::vector<Refusal>& refusals() {
  const std::string none = "model.position=none";
  static const std::vector<Refusal> all{
      {{"model.width=9", "model.heads=3"}, "model.position", "position xl needs an even width"},
      {{"model.attention.cache.kind=hidden"}, "model.attention.cache.length", "the cache needs a length"},
      {{"model.attention.cache.kind=kv"}, "model.attention.cache.length", "the cache needs a length"},
      {{"model.attention.cache.length=4"}, "model.attention.cache.length", "a length without a cache has no meaning"},
      {{"model.attention={window: 4, cache: {kind: kv, length: 5}}"},
       "model.attention.cache.length",
       "the cache is longer than attention.window"},
      {{"model.attention={mask_empty_cache: false, cache: {kind: hidden, length: 4}}"},
       "model.attention.mask_empty_cache",
       "false needs attention.cache.kind: kv"},
      {{"model.position=t5", "model.attention.t5={buckets: 8, max_distance: 4}"},
       "model.attention.t5.max_distance",
       "must exceed half of attention.t5.buckets"},
      {{"model.attention.qk_norm=true"}, "model.attention.qk_norm", "do not go with position xl"},
      {{"model.position=rope", "model.head_size=3"}, "model.attention.rope.dims", "the number must be even"},
      {{"model.position=rope", "model.attention.rope.dims=3"}, "model.attention.rope.dims", "the number must be even"},
      {{"model.position=rope", "model.attention.rope.dims=6"}, "model.attention.rope.dims", "more than a head has"},
      {{"model.attention.cache.dtype=bf16"}, "model.attention.cache.dtype", "a dtype without a cache"},
      {{"model.width=8", "model.attention.token_shift=0.01"}, "model.attention.token_shift", "less than one"},
      {{"model.attention.same_length=true"}, "model.attention.same_length", "counts the keys of a cache"},
      {{"model.attention={same_length: true, window: 4, cache: {kind: kv}}"},
       "model.attention.same_length",
       "both say how far a token sees"},
      {{"model.attention={same_length: true, attend_self: false, cache: {kind: kv, length: 4}}"},
       "model.attention.same_length",
       "counts the token itself"},
      {{"model.attention={kind: vq, cache: {kind: kv, length: 4}}"},
       "model.attention.kind",
       "set cache.kind and cache.length to none"},
      {{"model.attention.kind=vq", "model.position=rope"}, "model.position", "which rope cannot give"},
      {{"model.attention={kind: vq, qk_norm: true}"}, "model.attention.qk_norm", "vq normalises queries and keys"},
      {{"model.attention={kind: vq, attend_self: false}"}, "model.attention.attend_self", "vq always sees the token"},
      {{"model.attention.kind=vq", "model.dropout.attention=0.1"}, "model.dropout.attention", "vq has no dropout"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", "model.layers=1"}, "model.layers", "layers below and above"},
      {{"model.stack={kind: drt, drt: {groups: 1, lower_layers: 2}}"},
       "model.stack.drt.lower_layers",
       "must be left above the chunk encoder"},
      {{"model.stack={kind: drt, drt: {groups: 2}}"}, "model.stack.drt.groups", "use a divisor of their number"},
      {{"model.stack={kind: drt, drt: {groups: 1, key_heads: 3}}"},
       "model.stack.drt.key_heads",
       "use a divisor of model.heads"},
      {{"model.stack={kind: drt, drt: {groups: 1, nearest: 5, capacity: 4}}"},
       "model.stack.drt.nearest",
       "no chunk is that far back"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", "model.norm.placement=post"},
       "model.norm.placement",
       "what is read of chunks is normalised"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", "model.mlp.kind=none"}, "model.mlp.kind", "reads chunks before"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", none, "model.head_size=3"},
       "model.head_size",
       "the chunk encoder has rotary"},
      {{"model.attention.kind=landmark"}, "model.position", "landmark moves blocks"},
      {{none, "model.attention={kind: landmark, cache: {kind: kv, length: 4}}"},
       "model.attention.cache",
       "landmark stores blocks by itself"},
      {{none, "model.attention={kind: landmark, window: 4}"}, "model.attention.window", "landmark sees all of"},
      {{none, "model.attention={kind: landmark, qk_norm: true}"}, "model.attention.qk_norm", "landmark attends with"},
      {{none, "model.attention={kind: landmark, attend_self: false}"},
       "model.attention.attend_self",
       "itself in landmark attention"},
      {{none, "model.attention.kind=landmark", "model.dropout.attention=0.1"},
       "model.dropout.attention",
       "landmark drops whole blocks"},
      {{none, "model.attention={kind: landmark, landmark: {jump: 5}}"},
       "model.attention.landmark.jump",
       "only rotary positions can jump"},
      {{"model.attention.kind=moba"}, "model.position", "moba compares queries with means"},
      {{none, "model.attention={kind: moba, cache: {kind: kv, length: 4}}"},
       "model.attention.cache",
       "moba stores blocks by itself"},
      {{none, "model.attention={kind: moba, window: 4}"}, "model.attention.window", "moba chooses what a token sees"},
      {{none, "model.attention={kind: moba, qk_norm: true}"}, "model.attention.qk_norm", "moba attends with"},
      {{none, "model.attention={kind: moba, attend_self: false}"}, "model.attention.attend_self", "itself in moba"},
      {{none, "model.attention.kind=moba", "model.dropout.attention=0.1"},
       "model.dropout.attention",
       "moba has no dropout"},
      {{"model.memory=[{kind: knn, layers: [0]}, {kind: knn, layers: [0], combine: joint}]"},
       "model.memory.1.combine",
       "list it before the other memories"},
      {{"model.memory=[{kind: knn, layers: [0], write: evict}]"},
       "model.memory.0.write",
       "no cache that entries could"},
      {{"model.memory=[{kind: knn, layers: [0], write: evict}]",
        "model.attention={mask_empty_cache: false, cache: {kind: kv, length: 4}}", "model.position=none"},
       "model.memory.0.write",
       "the empty slots of attention.mask_empty_cache"},
  };
  return all;
}

// Those of all layers, and those of each mechanism.
std::vector<CompositionRule> all_rules() {
  std::vector<CompositionRule> rules(attention_rules().begin(), attention_rules().end());
  for (const Mechanism* mechanism : mechanisms()) {
    rules.insert(rules.end(), mechanism->rules.begin(), mechanism->rules.end());
  }
  return rules;
}

TEST(Composition, EveryRuleRefusesWithKeyAndReason) {
  std::set<std::string> met;
  for (const Refusal& refusal : refusals()) {
    EXPECT_ERROR(parse(refusal.settings), ErrorKind::config, refusal.key);
    EXPECT_ERROR(parse(refusal.settings), ErrorKind::config, refusal.message);
    for (const CompositionRule& rule : all_rules()) {
      if (std::string(rule.message).find(refusal.message) != std::string::npos) met.insert(rule.message);
    }
  }
  EXPECT_EQ(met.size(), all_rules().size()) << "a rule has no case above";
}

// One step away from each refusal.
TEST(Composition, NeighboursOfRefusalsAreAllowed) {
  const std::vector<std::vector<std::string>> allowed{
      {"model.width=9", "model.heads=3", "model.position=none"},
      {"model.width=9", "model.heads=3", "model.position=t5"},
      {"model.attention={window: 4, cache: {kind: hidden}}"},
      {"model.attention={cache: {kind: kv, length: 4}}"},
      {"model.attention={window: 5, cache: {kind: kv, length: 5}}"},
      {"model.attention={mask_empty_cache: false, cache: {kind: kv, length: 4}}"},
      {"model.position=t5", "model.attention.t5={buckets: 8, max_distance: 5}"},
      {"model.position=none", "model.attention.qk_norm=true"},
      {"model.width=9", "model.position=none", "model.head_size=5"},
      {"model.position=rope", "model.attention.qk_norm=true"},
      {"model.position=alibi", "model.attention.qk_norm=true"},
      {"model.position=rope", "model.head_size=3", "model.attention.rope.dims=2"},
      {"model.position=rope", "model.attention.rope.dims=4"},
      {"model.position=alibi", "model.head_size=3"},
      {"model.attention={cache: {kind: kv, length: 4, dtype: bf16}}"},
      {"model.attention={same_length: true, cache: {kind: hidden, length: 1}}"},
      {"model.key_heads=1"},
      {"model.dropout.position=0.1", "model.layer_overrides=[{layers: [1], position: rope}]"},
      {"model.initialization={kind: fan_in, scale_residual: false}"},
  };
  for (const std::vector<std::string>& settings : allowed) EXPECT_NO_THROW(parse(settings)) << settings[0];
}

TEST(Composition, OverridesAreCheckedPerLayer) {
  const auto overrides = [](const std::string& text) {
    return std::vector<std::string>{"model.attention={window: 8, cache: {kind: kv}}", "model.layer_overrides=" + text};
  };
  const RunConfig config = parse(overrides("[{layers: [-1], position: t5, attention: {window: 4}}]"));
  const std::vector<LayerConfig> layers = config.model.layer_configs();
  EXPECT_EQ(layers[0].position, Position::xl);
  EXPECT_EQ(layers[0].attention.cache_length(), 8);
  EXPECT_EQ(layers[1].position, Position::t5);
  EXPECT_EQ(layers[1].attention.cache_length(), 4);
  EXPECT_EQ(layers[1].attention.cache.kind, CacheKind::kv);

  EXPECT_ERROR(parse(overrides("[{layers: [1], attention: {cache: {length: 9}}}]")), ErrorKind::config,
               "tokens beyond the window are never seen (layer 1)");
  EXPECT_ERROR(parse(overrides("[{layers: [0], attention: {qk_norm: true}}]")), ErrorKind::config, "(layer 0)");
  EXPECT_ERROR(parse(overrides("[{layers: [2], position: t5}]")), ErrorKind::config,
               "model.layer_overrides.0.layers: there is no layer 2 among 2");
  EXPECT_ERROR(parse(overrides("[{layers: [-3], position: t5}]")), ErrorKind::config, "there is no layer -3 among 2");
  EXPECT_ERROR(parse(overrides("[{layers: [0], width: 4}]")), ErrorKind::config, "width");
}

TEST(Composition, InsertedTokensAreAlike) {
  const auto with_drt = [](const std::string& landmark) {
    return std::vector<std::string>{"model.position=rope", "model.layers=3",
                                    "model.stack={kind: drt, drt: {chunk: 7, groups: 1}}",
                                    "model.attention={kind: landmark, landmark: {" + landmark + "}}"};
  };
  EXPECT_NO_THROW(parse(with_drt("block: 7")));
  EXPECT_ERROR(parse(with_drt("block: 6")), ErrorKind::config,
               "drt inserts a token after every 7, another mechanism of the model after every 6; set them alike");
  EXPECT_ERROR(parse(with_drt("block: 7, in_loss: true")), ErrorKind::config,
               "the tokens that drt inserts are not in the loss, those of another mechanism of the model are in it");
}

TEST(Composition, WholeModelIsChecked) {
  EXPECT_ERROR(parse({"model.heads=3"}), ErrorKind::config, "model.heads: width 8 is no multiple of 3 heads");
  EXPECT_ERROR(parse({"model.heads=4", "model.key_heads=3"}), ErrorKind::config,
               "model.key_heads: 4 heads are no multiple of 3 key heads");
  EXPECT_ERROR(parse({"model.key_heads=4"}), ErrorKind::config, "model.key_heads: 2 heads are no multiple of 4");
  EXPECT_ERROR(parse({"model.position=t5", "model.dropout.position=0.1"}), ErrorKind::config,
               "model.dropout.position: no layer has position xl");
  EXPECT_ERROR(parse({"model.initialization={kind: fan_in, std: 0.1}"}), ErrorKind::config,
               "model.initialization.std: kind: fan_in takes the deviation from the size");
  EXPECT_ERROR(parse({"model.attention.rope.base=1"}), ErrorKind::config, "model.attention.rope.base");
  EXPECT_ERROR(parse({"data.pack=concat", "model.attention={mask_empty_cache: false, cache: {kind: kv, length: 4}}"}),
               ErrorKind::config, "data.pack: concat cannot be combined");
  EXPECT_ERROR(parse({"data.pack=concat",
                      "model.layer_overrides=[{layers: [1], attention: {mask_empty_cache: false, "
                      "cache: {kind: kv, length: 4}}}]"}),
               ErrorKind::config, "data.pack: concat cannot be combined");
}

TEST(Composition, MemoriesAreCheckedByName) {
  EXPECT_ERROR(parse({"model.memory=[{kind: knm, layers: [0]}]"}), ErrorKind::config,
               "model.memory.0.kind: expects one of knn");
  register_trivial_memories();
  EXPECT_NO_THROW(parse({"model.memory=[{kind: trivial_log, layers: [0, -1]}]"}));
  EXPECT_ERROR(parse({"model.memory=[{kind: trivial_log, layers: [2]}]"}), ErrorKind::config,
               "model.memory.0.layers: there is no layer 2 among 2");
  EXPECT_ERROR(parse({"model.memory=[{kind: trivial_log, layers: [1, -1]}]"}), ErrorKind::config,
               "model.memory.0.layers: layer 1 is named twice");
  EXPECT_ERROR(parse({"model.memory=[{layers: [1]}]"}), ErrorKind::config, "model.memory.0.kind");
}

// All combinations of what the rules speak of: refused by the configuration exactly when a rule says so, and the others
// can be built.
TEST(Composition, WhatIsNotRefusedBuilds) {
  int built = 0;
  for (const char* position : {"t5", "xl", "rope", "alibi", "none"}) {
    for (const char* cache : {"{kind: none}", "{kind: hidden, length: 3}", "{kind: kv, length: 3}", "{kind: kv}"}) {
      for (const char* rest :
           {"", ", window: 4", ", window: 2", ", qk_norm: true", ", mask_empty_cache: false", ", attend_self: false"}) {
        const std::string attention = std::string("{cache: ") + cache + rest + "}";
        RunConfig config;
        try {
          config = parse({"model.attention=" + attention, std::string("model.position=") + position});
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::config);
          continue;
        }
        ParameterStore store;
        const Network network(store, config.model, 11, DType::f32);
        store.allocate(DType::f32, kMeta, 1);
        const size_t logs = config.model.attention.cache.kind == CacheKind::none     ? 0
                            : config.model.attention.cache.kind == CacheKind::hidden ? 2
                                                                                     : 4;
        EXPECT_EQ(network.declared.state.logs().size(), logs) << attention;
        ++built;
      }
    }
  }
  // Per position 5 without a cache, 4 with hidden states, 5 with keys of a length, 2 with keys as long as a window;
  // Transformer-XL loses the three with normalised keys.
  EXPECT_EQ(built, 5 * 16 - 3);
}

}  // namespace
}  // namespace quire::test
