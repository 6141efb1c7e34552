#include "layers/model/composition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "layers/mechanism/mechanism_registry.h"
#include "layers/mixers/softmax_config.h"
#include "layers/model/model_mechanisms.h"
#include "tests/support/expect_error.h"
#include "tests/support/trivial_memories.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

// Settings of the model are given without `model.`.
RunConfig parse(std::vector<std::string> settings) {
  for (std::string& setting : settings) setting.insert(0, setting.starts_with("data") ? "" : "model.");
  return parse_config<RunConfig>("model: {width: 8, heads: 2, layers: 2}\n", "run.yaml", settings);
}

const SoftmaxConfig& softmax(const LayerConfig& layer) {
  return layer.attention.mechanism.options.get<SoftmaxConfig>();
}

std::string mixer(const std::string& kind, const std::string& options) {
  return fmt::format("attention={{kind: {0}, {0}: {{{1}}}}}", kind, options);
}

std::string drt(const std::string& options) {
  return fmt::format("stack={{kind: drt, drt: {{groups: 1, {}}}}}", options);
}

std::string memory(const std::string& options) {
  return fmt::format("memory=[{{kind: knn, layers: [0], {}}}]", options);
}

struct Refusal {
  std::vector<std::string> settings;
  std::string key;
  std::string message;
};

const std::vector<Refusal>& refusals() {
  const std::string none = "position.kind=none", pieces = "data.subsequence=16", windows = "data.sampling=windows";
  const std::string positions = "embedding.learned_positions", learned = positions + "=16";
  const std::string length = "attention.softmax.carry.length", same_length = "attention.softmax.same_length";
  static const std::vector<Refusal> all{
      {{"width=9", "heads=3"}, "position", "position xl needs an even width"},
      {{"attention.softmax.carry.kind=hidden"}, length, "what is carried needs a length"},
      {{"attention.softmax.carry.kind=kv"}, length, "what is carried needs a length"},
      {{"attention.softmax.carry.length=4"}, length, "a length has no meaning where"},
      {{mixer("softmax", "window: 4, carry: {kind: kv, length: 5}")}, length, "more is carried than the window"},
      {{mixer("softmax", "carry: {kind: hidden, length: 4, mask_empty: false}")},
       "attention.softmax.carry.mask_empty",
       "false needs carry.kind: kv"},
      {{"position.kind=t5", "position.t5={buckets: 8, max_distance: 4}"},
       "position.t5.max_distance",
       "must exceed half of position.t5.buckets"},
      {{"attention.softmax.qk_norm=true"}, "attention.softmax.qk_norm", "do not go with position xl"},
      {{"position.kind=t5", mixer("softmax", "qk_norm: true, rms_qk_norm: head")},
       "attention.softmax.rms_qk_norm",
       "both normalise queries and keys"},
      {{"position.kind=t5", mixer("softmax", "qk_norm: true, scale: 0.5")},
       "attention.softmax.scale",
       "leave one of the two out"},
      {{"position.kind=rope", "head_size=4",
        "position.rope={dims: 2, scaling: {kind: yarn, factor: 4, original_length: 16}}"},
       "position.rope.dims",
       "scale the logits of all features"},
      {{"position.kind=rope", "head_size=2",
        "position.rope.scaling={kind: dynamic, factor: 4, original_length: 16, length: 64}"},
       "position.rope.scaling",
       "rotated features less 2"},
      {{"position.kind=rope",
        "position.rope.scaling={kind: longrope, original_length: 16, length: 64, short_factors: [1], "
        "long_factors: [1, 2]}"},
       "position.rope.scaling",
       "one number for each pair"},
      {{pieces, mixer("softmax", "carry: {kind: kv, length: 4}"), learned},
       positions,
       "attention.kind softmax of layer 0 carries state from one to the next"},
      {{none, pieces, "attention.kind=landmark", learned},
       positions,
       "attention.kind landmark of layer 0 carries state from one to the next; leave learned_positions out"},
      {{none, pieces, drt(""), learned}, positions, "stack.kind drt carries state"},
      {{none, pieces, "memory=[{kind: knn, layers: [-1]}]", learned}, positions, "a memory of layer 1 carries state"},
      {{pieces, "attention.shifted_share=0.5", learned}, positions, "without a carry, shifted_share 0"},
      {{"data.subsequence=17", learned}, positions, "less than the 17 of data.subsequence"},
      {{"position.kind=rope", "head_size=3"}, "position.rope.dims", "the number must be even"},
      {{"position.kind=rope", "position.rope.dims=3"}, "position.rope.dims", "the number must be even"},
      {{"position.kind=rope", "position.rope.dims=6"}, "position.rope.dims", "more than a head has"},
      {{"attention.softmax.carry.dtype=bf16"}, "attention.softmax.carry.dtype", "a dtype has no meaning"},
      {{"width=8", "attention.shifted_share=0.01"}, "attention.shifted_share", "less than one"},
      {{"attention.softmax.same_length=true"}, same_length, "counts the keys that are carried"},
      {{mixer("softmax", "same_length: true, window: 4, carry: {kind: kv}")},
       same_length,
       "both say how far a token sees"},
      {{mixer("softmax", "same_length: true, attend_self: false, carry: {kind: kv, length: 4}")},
       same_length,
       "counts the token itself"},
      {{"attention.kind=vq", "position.kind=rope"}, "position", "which rope cannot give"},
      {{"attention.kind=vq", "dropout.attention=0.1"}, "dropout.attention", "vq has no dropout"},
      {{drt(""), "layers=1"}, "layers", "layers below and above"},
      {{drt("lower_layers: 2")}, "stack.drt.lower_layers", "must be left above the chunk encoder"},
      {{"stack={kind: drt, drt: {groups: 2}}"}, "stack.drt.groups", "use a divisor of their number"},
      {{drt("key_heads: 3")}, "stack.drt.key_heads", "use a divisor of model.heads"},
      {{drt("top_k: 2, nearest: 5, carry: {length: 4}")}, "stack.drt.nearest", "no chunk is that far back"},
      {{drt(""), "norm.placement=post"}, "norm.placement", "what is read of chunks is normalised"},
      {{drt(""), "norm.placement=both"}, "norm.placement", "what is read of chunks is normalised"},
      {{drt(""), "residual=parallel"}, "residual", "chunks are read between"},
      {{"residual=parallel", "norm.placement=post"}, "norm.placement", "has only one; use pre"},
      {{"residual=parallel", "layer_overrides=[{layers: [1], norm: {placement: post}}]"},
       "layer_overrides.0.norm.placement",
       "has only one; use pre"},
      {{"residual=parallel", "mlp.kind=none"}, "mlp.kind", "side by side"},
      {{drt(""), "mlp.kind=none"}, "mlp.kind", "reads chunks before"},
      {{drt(""), none, "head_size=3"}, "head_size", "the chunk encoder has rotary"},
      {{none, drt(""), "layer_overrides=[{layers: [1], heads: 4}]"},
       "layer_overrides",
       "need the head size of the model"},
      {{"attention.kind=landmark"}, "position", "landmark moves blocks"},
      {{none, "attention.kind=landmark", "dropout.attention=0.1"}, "dropout.attention", "landmark drops whole blocks"},
      {{none, mixer("landmark", "jump: 5")}, "attention.landmark.jump", "only rotary positions can jump"},
      {{"attention.kind=moba"}, "position", "moba compares queries with means"},
      {{none, "attention.kind=moba", "dropout.attention=0.1"}, "dropout.attention", "moba has no dropout"},
      {{"attention.kind=hils"}, "position", "hils rotates summaries of keys"},
      {{none, "attention.kind=hils", "dropout.attention=0.1"}, "dropout.attention", "hils has no dropout"},
      {{none, mixer("hils", "rope_length: 64")}, "attention.hils.rope_length", "only rotary positions have one"},
      {{"attention.kind=delta"}, "position", "delta has no positions"},
      {{none, "attention.kind=delta", "dropout.attention=0.1"},
       "dropout.attention",
       "delta has no attention probabilities"},
      {{none, "attention.kind=block_recurrent", "key_heads=1"}, "key_heads", "block_recurrent has keys for every head"},
      {{"attention.kind=block_recurrent", "position.kind=xl"},
       "position",
       "the keys of block_recurrent are normalised"},
      {{none, mixer("block_recurrent", "feedback: -3")},
       "attention.block_recurrent.feedback",
       "the model has no such layer"},
      {{none, mixer("block_recurrent", "feedback: 0"),
        "layer_overrides=[{layers: [1], attention: {block_recurrent: {gate: lstm}}}]"},
       "attention.block_recurrent.feedback",
       "give every layer the same kind and options"},
      {{none, "attention={kind: softmax}",
        "layer_overrides=[{layers: [1], attention: {kind: block_recurrent, block_recurrent: {feedback: 1}}}]"},
       "layer_overrides.0.attention.block_recurrent.feedback",
       "give every layer the same kind and options"},
      {{none, "attention={kind: block_recurrent, shifted_share: 0.5, block_recurrent: {feedback: 0}}"},
       "attention.shifted_share",
       "no token before the window"},
      {{none, mixer("block_recurrent", "feedback: 0"), "stack.kind=drt"}, "stack.kind", "runs all layers itself"},
      {{none, "attention.kind=block_recurrent", "memory=[{kind: knn, layers: [0]}]"},
       "memory.0.layers",
       "beside which no memory goes"},
      {{"memory=[{kind: knn, layers: [0]}, {kind: knn, layers: [0], combine: joint}]"},
       "memory.1.combine",
       "list it before the other memories"},
      {{memory("write: evict")}, "memory.0.write", "carries nothing that entries could"},
      {{memory("write: evict"), mixer("softmax", "carry: {kind: kv, length: 4, mask_empty: false}"),
        "position.kind=none"},
       "memory.0.write",
       "the empty slots of carry.mask_empty"},
      {{none, windows, mixer("landmark", "carry: {in_training: true}")},
       "attention.landmark.carry.in_training",
       "no training step finds blocks of an earlier one"},
      {{"data.sampling=windows", memory("stale: {refresh: 0.1}")},
       "memory.0.stale.refresh",
       "no training step finds entries"},
      {{"memory=[{kind: knn, layers: []}]"}, "memory.0.layers", "names no layer"},
      {{"layer_overrides=[{layers: [], mlp: {kind: none}}]"}, "layer_overrides.0.layers", "names no layer"},
      {{"stack.kind=drt", "stack.drt.scores=file"}, "stack.drt.scores", "name it with scores_file"},
      {{"stack.kind=drt", "stack.drt.scores=file"}, "stack.drt.scores", "command line: model.stack.drt.scores=file: "},
  };
  return all;
}

// Those of all layers, and those of each mechanism.
std::vector<CompositionRule> all_rules() {
  std::vector<CompositionRule> rules(attention_rules().begin(), attention_rules().end());
  for (const Mechanism* mechanism : mechanisms()) {
    rules.insert(rules.end(), mechanism->rules.begin(), mechanism->rules.end());
    rules.insert(rules.end(), mechanism->rules_without_carry.begin(), mechanism->rules_without_carry.end());
  }
  return rules;
}

TEST(Composition, EveryRuleRefusesWithKeyAndReason) {
  std::set<std::string> met;
  for (const Refusal& refusal : refusals()) {
    EXPECT_ERROR(parse(refusal.settings), ErrorKind::config, "model." + refusal.key);
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
      {"width=9", "heads=3", "position.kind=none"},
      {"width=9", "heads=3", "position.kind=t5"},
      {mixer("softmax", "window: 4, carry: {kind: hidden}")},
      {mixer("softmax", "carry: {kind: kv, length: 4}")},
      {mixer("softmax", "window: 5, carry: {kind: kv, length: 5}")},
      {mixer("softmax", "carry: {kind: kv, length: 4, mask_empty: false}")},
      {"position.kind=t5", "position.t5={buckets: 8, max_distance: 5}"},
      {"position.kind=none", "attention.softmax.qk_norm=true"},
      {"width=9", "position.kind=none", "head_size=5"},
      {"position.kind=rope", "attention.softmax.qk_norm=true"},
      {"position.kind=alibi", "attention.softmax.qk_norm=true"},
      {"position.kind=rope", "head_size=3", "position.rope.dims=2"},
      {"position.kind=rope", "position.rope.dims=4"},
      {"position.kind=alibi", "head_size=3"},
      {mixer("softmax", "carry: {kind: kv, length: 4, dtype: bf16}")},
      {mixer("softmax", "same_length: true, carry: {kind: hidden, length: 1}")},
      {"key_heads=1"},
      {"dropout.position=0.1", "layer_overrides=[{layers: [1], position: {kind: rope}}]"},
      {"initialization={kind: fan_in, scale_residual: false}"},
      // Evaluation carries what training in windows does not.
      {"data.sampling=windows", mixer("softmax", "carry: {kind: kv, length: 4}")},
      {"data.sampling=windows", "memory=[{kind: knn, layers: [0]}]"},
      {"data.sampling=columns", "memory=[{kind: knn, layers: [0], stale: {refresh: 0.1}}]"},
  };
  for (const std::vector<std::string>& settings : allowed) EXPECT_NO_THROW(parse(settings)) << settings[0];
}

TEST(Composition, OverridesAreCheckedPerLayer) {
  const auto overrides = [](const std::string& text) {
    return std::vector<std::string>{mixer("softmax", "window: 8, carry: {kind: kv}"), "layer_overrides=" + text};
  };
  const RunConfig config =
      parse(overrides("[{layers: [-1], position: {kind: t5}, attention: {softmax: {window: 4}}}]"));
  const std::vector<LayerConfig> layers = config.model.layer_configs();
  EXPECT_EQ(layers[0].position.kind, Position::xl);
  EXPECT_EQ(softmax(layers[0]).carried(), 8);
  EXPECT_EQ(layers[1].position.kind, Position::t5);
  EXPECT_EQ(softmax(layers[1]).carried(), 4);
  EXPECT_EQ(softmax(layers[1]).carry.kind, CarryKind::kv);

  EXPECT_ERROR(parse(overrides("[{layers: [1], attention: {softmax: {carry: {length: 9}}}}]")), ErrorKind::config,
               "tokens beyond it are never seen (layer 1)");
  EXPECT_ERROR(parse(overrides("[{layers: [0], attention: {softmax: {qk_norm: true}}}]")), ErrorKind::config,
               "(layer 0)");
  EXPECT_ERROR(parse(overrides("[{layers: [2], position: {kind: t5}}]")), ErrorKind::config,
               "model.layer_overrides.0.layers: there is no layer 2 among 2");
  EXPECT_ERROR(parse(overrides("[{layers: [-3], position: {kind: t5}}]")), ErrorKind::config,
               "there is no layer -3 among 2");
  EXPECT_ERROR(parse(overrides("[{layers: [0], width: 4}]")), ErrorKind::config, "width");
}

TEST(Composition, OptionsThatMeanNothingAreRefused) {
  const std::string vq = "model.attention.vq.", infini = "model.attention.infini.";
  for (const auto& [setting, key, message] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {drt("bm25: {k1: 2}"), "model.stack.drt.bm25.k1", "scores is not bm25"},
           {drt("scores: random, noise: 0.5"), "model.stack.drt.noise", "only learned and fixed scores"},
           {drt("scores: bm25, noise: 0.5"), "model.stack.drt.noise", "only learned and fixed scores"},
           {drt("scores: bm25, weights: uniform, landmark: mean"), "model.stack.drt.landmark", "only weights: learned"},
           {drt("carry: {length: 2}"), "model.stack.drt.carry.length", "8 chunks cannot be read of 2"},
           {drt("top_k: 3, carry: {length: 2}"), "model.stack.drt.top_k", "use a carry.length of at least as many"},
           {mixer("landmark", "context_miss: {controlled: 0.3}"), "model.attention.landmark.context_miss.controlled",
            "set context_miss.enabled"},
           {mixer("landmark", "context_miss: {cutoff: 0.3}"), "model.attention.landmark.context_miss.cutoff",
            "set context_miss.enabled"},
           {mixer("landmark", "carry: {length: 1}"), "model.attention.landmark.carry.length", "or a smaller top_k"},
           {mixer("moba", "carry: {length: 0, place: file}"), "model.attention.moba.carry.place", "nothing is stored"},
           {mixer("moba", "carry: {length: 0, dtype: bf16}"), "model.attention.moba.carry.dtype", "nothing is stored"},
           {mixer("moba", "top_k: 1, max_distance: 3"), "model.attention.moba.max_distance", "its own block alone"},
           {mixer("moba", "carry: {length: 2}"), "model.attention.moba.carry.length", "3 blocks besides its own"},
           {mixer("hils", "window: 100000"), "model.attention.hils.window", "a carry.length of at least as many"},
           {mixer("infini", "update: none, empty_gate: local"), infini + "empty_gate", "there is no memory"},
           {mixer("infini", "update: none, gate: {init: 1}"), infini + "gate.init", "there is no memory"},
           {mixer("infini", "update: none, bptt: 2"), infini + "bptt", "there is no memory"},
           {mixer("infini", "update: none, keep: 0.5"), infini + "keep", "there is no memory"},
           {mixer("vq", "codebook: {rounds: 3}"), vq + "codebook.rounds", "init is not kmeans"},
           {mixer("vq", "compressive_cache: false, reduction: scan"), vq + "reduction", "there are none"},
           {memory("inverted: {probes: 3}"), "model.memory.0.inverted.probes", "search is not inverted"}}) {
    EXPECT_ERROR(parse({"position.kind=none", setting}), ErrorKind::config, key + ": ");
    EXPECT_ERROR(parse({"position.kind=none", setting}), ErrorKind::config, message);
  }
}

TEST(Composition, InsertedTokensAreAlike) {
  const auto with_drt = [](const std::string& landmark) {
    return std::vector<std::string>{"position.kind=rope", "layers=3", "stack={kind: drt, drt: {chunk: 7, groups: 1}}",
                                    "attention={kind: landmark, landmark: {" + landmark + "}}"};
  };
  EXPECT_NO_THROW(parse(with_drt("block: 7")));
  EXPECT_ERROR(parse(with_drt("block: 6")), ErrorKind::config,
               "model.stack.drt: drt inserts a token after every 7 (8 with it), another mechanism or layer of the "
               "model after every 6 (7 with it); set them alike");
  EXPECT_ERROR(parse(with_drt("block: 7, in_loss: true")), ErrorKind::config,
               "the tokens that drt inserts are not in the loss, those of another mechanism of the model are in it");
  EXPECT_ERROR(parse({"position.kind=rope", mixer("hils", "chunk: 8"),
                      "layer_overrides=[{layers: [1], attention: {hils: {chunk: 4}}}]"}),
               ErrorKind::config,
               "model.layer_overrides.0.attention.hils.chunk: hils inserts a token after every 3 (4 with it), another "
               "mechanism or layer of the model after every 7 (8 with it)");
}

TEST(Composition, WholeModelIsChecked) {
  EXPECT_ERROR(parse({"heads=3"}), ErrorKind::config, "model.heads: width 8 is no multiple of 3 heads");
  EXPECT_ERROR(parse({"heads=4", "key_heads=3"}), ErrorKind::config,
               "model.key_heads: 4 heads are no multiple of 3 key heads");
  EXPECT_ERROR(parse({"key_heads=4"}), ErrorKind::config, "model.key_heads: 2 heads are no multiple of 4");
  EXPECT_ERROR(parse({"position.kind=t5", "dropout.position=0.1"}), ErrorKind::config,
               "model.dropout.position: no layer has position xl");
  EXPECT_ERROR(parse({"initialization={kind: fan_in, std: 0.1}"}), ErrorKind::config,
               "model.initialization.std: kind: fan_in takes the deviation from the size");
  EXPECT_ERROR(parse({"position.rope.base=1"}), ErrorKind::config, "model.position.rope.base");
  EXPECT_ERROR(parse({"data.pack=concat", mixer("softmax", "carry: {kind: kv, length: 4, mask_empty: false}")}),
               ErrorKind::config, "data.pack: concat cannot be combined");
  EXPECT_ERROR(parse({"data.pack=concat",
                      "layer_overrides=[{layers: [1], attention: {softmax: "
                      "{carry: {kind: kv, length: 4, mask_empty: false}}}}]"}),
               ErrorKind::config, "data.pack: concat cannot be combined");
  const auto recurrent = [](const std::string& options) {
    return std::vector<std::string>{"data={pack: concat, subsequence: 16}", "position.kind=none",
                                    "attention={kind: block_recurrent, block_recurrent: {" + options + "}}"};
  };
  EXPECT_ERROR(parse(recurrent("window: 4, mask_empty: false")), ErrorKind::config,
               "data.pack: concat cannot be combined");
  EXPECT_ERROR(parse(recurrent("window: 3, feedback: 0")), ErrorKind::config,
               "data.subsequence: 16 is not a multiple of 3");
  EXPECT_NO_THROW(parse(recurrent("window: 4, feedback: 0")));
  EXPECT_NO_THROW(parse(recurrent("window: 3")));
}

// One layer has states with feedback, otherwise every one.
TEST(Composition, FeedbackCostsTheStatesOfOneLayer) {
  const auto flops = [](int layers, const std::string& feedback) {
    return flops_of(parse({"position.kind=none", fmt::format("layers={}", layers),
                           "attention={kind: block_recurrent, block_recurrent: {window: 8, states: 5, update: "
                           "dual, feedback: " +
                               feedback + "}}"})
                        .model,
                    {.rows = 2, .subsequence = 32})
        .learned;
  };
  EXPECT_EQ(flops(1, "0"), flops(1, "none"));
  const double states = (flops(2, "none") - flops(2, "1"));
  EXPECT_GT(states, 0);
  EXPECT_DOUBLE_EQ(flops(4, "none") - flops(4, "-1"), 3 * states);
}

TEST(Composition, MemoriesAreCheckedByName) {
  EXPECT_ERROR(parse({"memory=[{kind: knm, layers: [0]}]"}), ErrorKind::config,
               "model.memory.0.kind: expects one of knn");
  register_trivial_memories();
  EXPECT_NO_THROW(parse({"memory=[{kind: trivial_log, layers: [0, -1]}]"}));
  EXPECT_ERROR(parse({"memory=[{kind: trivial_log, layers: [2]}]"}), ErrorKind::config,
               "model.memory.0.layers: there is no layer 2 among 2");
  EXPECT_ERROR(parse({"memory=[{kind: trivial_log, layers: [1, -1]}]"}), ErrorKind::config,
               "model.memory.0.layers: layer 1 is named twice");
  EXPECT_ERROR(parse({"memory=[{layers: [1]}]"}), ErrorKind::config, "model.memory.0.kind");
}

// All combinations of what the rules speak of: refused by the configuration exactly when a rule says so, and the others
// can be built.
TEST(Composition, WhatIsNotRefusedBuilds) {
  int built = 0;
  for (const char* position : {"t5", "xl", "rope", "alibi", "none"}) {
    for (const char* cache : {"{kind: none}", "{kind: hidden, length: 3}", "{kind: kv, length: 3}", "{kind: kv}"}) {
      for (const char* rest :
           {"", ", window: 4", ", window: 2", ", qk_norm: true", ", mask_empty: false", ", attend_self: false"}) {
        std::string carry = cache;
        if (std::string(rest) == ", mask_empty: false") carry.insert(carry.size() - 1, rest);
        const std::string options = carry == cache ? rest : "";
        const std::string attention = "{softmax: {carry: " + carry + options + "}}";
        RunConfig config;
        try {
          config = parse({"attention=" + attention, std::string("position.kind=") + position});
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::config);
          continue;
        }
        ParameterStore store;
        const Network network(store, config.model, 11, DType::f32);
        store.allocate(DType::f32, kMeta, 1);
        const CarryKind carried = config.model.attention.mechanism.options.get<SoftmaxConfig>().carry.kind;
        const size_t logs = carried == CarryKind::none ? 0 : carried == CarryKind::hidden ? 2 : 4;
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
