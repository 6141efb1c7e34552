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

RunConfig parse(const std::vector<std::string>& settings) {
  return parse_config<RunConfig>("model: {width: 8, heads: 2, layers: 2}\n", "run.yaml", settings);
}

const SoftmaxConfig& softmax(const LayerConfig& layer) {
  return layer.attention.mechanism.options.get<SoftmaxConfig>();
}

struct Refusal {
  std::vector<std::string> settings;
  std::string key;
  std::string message;
};

const std::vector<Refusal>& refusals() {
  const std::string none = "model.position.kind=none";
  static const std::vector<Refusal> all{
      {{"model.width=9", "model.heads=3"}, "model.position", "position xl needs an even width"},
      {{"model.attention.softmax.carry.kind=hidden"},
       "model.attention.softmax.carry.length",
       "what is carried needs a length"},
      {{"model.attention.softmax.carry.kind=kv"},
       "model.attention.softmax.carry.length",
       "what is carried needs a length"},
      {{"model.attention.softmax.carry.length=4"},
       "model.attention.softmax.carry.length",
       "a length has no meaning where"},
      {{"model.attention={softmax: {window: 4, carry: {kind: kv, length: 5}}}"},
       "model.attention.softmax.carry.length",
       "more is carried than the window"},
      {{"model.attention={softmax: {carry: {kind: hidden, length: 4, mask_empty: false}}}"},
       "model.attention.softmax.carry.mask_empty",
       "false needs carry.kind: kv"},
      {{"model.position.kind=t5", "model.position.t5={buckets: 8, max_distance: 4}"},
       "model.position.t5.max_distance",
       "must exceed half of position.t5.buckets"},
      {{"model.attention.softmax.qk_norm=true"}, "model.attention.softmax.qk_norm", "do not go with position xl"},
      {{"model.position.kind=t5", "model.attention={softmax: {qk_norm: true, rms_qk_norm: head}}"},
       "model.attention.softmax.rms_qk_norm",
       "both normalise queries and keys"},
      {{"model.position.kind=t5", "model.attention={softmax: {qk_norm: true, scale: 0.5}}"},
       "model.attention.softmax.scale",
       "leave one of the two out"},
      {{"model.position.kind=rope", "model.head_size=4",
        "model.position.rope={dims: 2, scaling: {kind: yarn, factor: 4, original_length: 16}}"},
       "model.position.rope.dims",
       "scale the logits of all features"},
      {{"model.position.kind=rope", "model.head_size=2",
        "model.position.rope.scaling={kind: dynamic, factor: 4, original_length: 16, length: 64}"},
       "model.position.rope.scaling",
       "rotated features less 2"},
      {{"model.position.kind=rope",
        "model.position.rope.scaling={kind: longrope, original_length: 16, length: 64, short_factors: [1], "
        "long_factors: [1, 2]}"},
       "model.position.rope.scaling",
       "one number for each pair"},
      {{"data.subsequence=16", "model.attention={softmax: {carry: {kind: kv, length: 4}}}",
        "model.embedding.learned_positions=16"},
       "model.embedding.learned_positions",
       "attention.kind softmax of layer 0 carries state from one to the next"},
      {{none, "data.subsequence=16", "model.attention.kind=landmark", "model.embedding.learned_positions=16"},
       "model.embedding.learned_positions",
       "attention.kind landmark of layer 0 carries state from one to the next; leave learned_positions out"},
      {{none, "data.subsequence=16", "model.stack={kind: drt, drt: {groups: 1}}",
        "model.embedding.learned_positions=16"},
       "model.embedding.learned_positions",
       "stack.kind drt carries state"},
      {{none, "data.subsequence=16", "model.memory=[{kind: knn, layers: [-1]}]",
        "model.embedding.learned_positions=16"},
       "model.embedding.learned_positions",
       "a memory of layer 1 carries state"},
      {{"data.subsequence=16", "model.attention.shifted_share=0.5", "model.embedding.learned_positions=16"},
       "model.embedding.learned_positions",
       "without a carry, shifted_share 0"},
      {{"data.subsequence=17", "model.embedding.learned_positions=16"},
       "model.embedding.learned_positions",
       "less than the 17 of data.subsequence"},
      {{"model.position.kind=rope", "model.head_size=3"}, "model.position.rope.dims", "the number must be even"},
      {{"model.position.kind=rope", "model.position.rope.dims=3"},
       "model.position.rope.dims",
       "the number must be even"},
      {{"model.position.kind=rope", "model.position.rope.dims=6"}, "model.position.rope.dims", "more than a head has"},
      {{"model.attention.softmax.carry.dtype=bf16"}, "model.attention.softmax.carry.dtype", "a dtype has no meaning"},
      {{"model.width=8", "model.attention.shifted_share=0.01"}, "model.attention.shifted_share", "less than one"},
      {{"model.attention.softmax.same_length=true"},
       "model.attention.softmax.same_length",
       "counts the keys that are carried"},
      {{"model.attention={softmax: {same_length: true, window: 4, carry: {kind: kv}}}"},
       "model.attention.softmax.same_length",
       "both say how far a token sees"},
      {{"model.attention={softmax: {same_length: true, attend_self: false, carry: {kind: kv, length: 4}}}"},
       "model.attention.softmax.same_length",
       "counts the token itself"},
      {{"model.attention.kind=vq", "model.position.kind=rope"}, "model.position", "which rope cannot give"},
      {{"model.attention.kind=vq", "model.dropout.attention=0.1"}, "model.dropout.attention", "vq has no dropout"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", "model.layers=1"}, "model.layers", "layers below and above"},
      {{"model.stack={kind: drt, drt: {groups: 1, lower_layers: 2}}"},
       "model.stack.drt.lower_layers",
       "must be left above the chunk encoder"},
      {{"model.stack={kind: drt, drt: {groups: 2}}"}, "model.stack.drt.groups", "use a divisor of their number"},
      {{"model.stack={kind: drt, drt: {groups: 1, key_heads: 3}}"},
       "model.stack.drt.key_heads",
       "use a divisor of model.heads"},
      {{"model.stack={kind: drt, drt: {groups: 1, top_k: 2, nearest: 5, carry: {length: 4}}}"},
       "model.stack.drt.nearest",
       "no chunk is that far back"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", "model.norm.placement=post"},
       "model.norm.placement",
       "what is read of chunks is normalised"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", "model.norm.placement=both"},
       "model.norm.placement",
       "what is read of chunks is normalised"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", "model.residual=parallel"},
       "model.residual",
       "chunks are read between"},
      {{"model.residual=parallel", "model.norm.placement=post"}, "model.norm.placement", "has only one; use pre"},
      {{"model.residual=parallel", "model.layer_overrides=[{layers: [1], norm: {placement: post}}]"},
       "model.layer_overrides.0.norm.placement",
       "has only one; use pre"},
      {{"model.residual=parallel", "model.mlp.kind=none"}, "model.mlp.kind", "side by side"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", "model.mlp.kind=none"}, "model.mlp.kind", "reads chunks before"},
      {{"model.stack={kind: drt, drt: {groups: 1}}", none, "model.head_size=3"},
       "model.head_size",
       "the chunk encoder has rotary"},
      {{none, "model.stack={kind: drt, drt: {groups: 1}}", "model.layer_overrides=[{layers: [1], heads: 4}]"},
       "model.layer_overrides",
       "need the head size of the model"},
      {{"model.attention.kind=landmark"}, "model.position", "landmark moves blocks"},
      {{none, "model.attention.kind=landmark", "model.dropout.attention=0.1"},
       "model.dropout.attention",
       "landmark drops whole blocks"},
      {{none, "model.attention={kind: landmark, landmark: {jump: 5}}"},
       "model.attention.landmark.jump",
       "only rotary positions can jump"},
      {{"model.attention.kind=moba"}, "model.position", "moba compares queries with means"},
      {{none, "model.attention.kind=moba", "model.dropout.attention=0.1"},
       "model.dropout.attention",
       "moba has no dropout"},
      {{"model.attention.kind=hils"}, "model.position", "hils rotates summaries of keys"},
      {{none, "model.attention.kind=hils", "model.dropout.attention=0.1"},
       "model.dropout.attention",
       "hils has no dropout"},
      {{none, "model.attention={kind: hils, hils: {rope_length: 64}}"},
       "model.attention.hils.rope_length",
       "only rotary positions have one"},
      {{"model.attention.kind=delta"}, "model.position", "delta has no positions"},
      {{none, "model.attention.kind=delta", "model.dropout.attention=0.1"},
       "model.dropout.attention",
       "delta has no attention probabilities"},
      {{none, "model.attention.kind=block_recurrent", "model.key_heads=1"},
       "model.key_heads",
       "block_recurrent has keys for every head"},
      {{"model.attention.kind=block_recurrent", "model.position.kind=xl"},
       "model.position",
       "the keys of block_recurrent are normalised"},
      {{none, "model.attention={kind: block_recurrent, block_recurrent: {feedback: -3}}"},
       "model.attention.block_recurrent.feedback",
       "the model has no such layer"},
      {{none, "model.attention={kind: block_recurrent, block_recurrent: {feedback: 0}}",
        "model.layer_overrides=[{layers: [1], attention: {block_recurrent: {gate: lstm}}}]"},
       "model.attention.block_recurrent.feedback",
       "give every layer the same kind and options"},
      {{none, "model.attention={kind: softmax}",
        "model.layer_overrides=[{layers: [1], attention: {kind: block_recurrent, block_recurrent: {feedback: 1}}}]"},
       "model.layer_overrides.0.attention.block_recurrent.feedback",
       "give every layer the same kind and options"},
      {{none, "model.attention={kind: block_recurrent, shifted_share: 0.5, block_recurrent: {feedback: 0}}"},
       "model.attention.shifted_share",
       "no token before the window"},
      {{none, "model.attention={kind: block_recurrent, block_recurrent: {feedback: 0}}", "model.stack.kind=drt"},
       "model.stack.kind",
       "runs all layers itself"},
      {{none, "model.attention.kind=block_recurrent", "model.memory=[{kind: knn, layers: [0]}]"},
       "model.memory.0.layers",
       "beside which no memory goes"},
      {{"model.memory=[{kind: knn, layers: [0]}, {kind: knn, layers: [0], combine: joint}]"},
       "model.memory.1.combine",
       "list it before the other memories"},
      {{"model.memory=[{kind: knn, layers: [0], write: evict}]"},
       "model.memory.0.write",
       "carries nothing that entries could"},
      {{"model.memory=[{kind: knn, layers: [0], write: evict}]",
        "model.attention={softmax: {carry: {kind: kv, length: 4, mask_empty: false}}}", "model.position.kind=none"},
       "model.memory.0.write",
       "the empty slots of carry.mask_empty"},
      {{none, "data.sampling=windows", "model.attention={kind: landmark, landmark: {carry: {in_training: true}}}"},
       "model.attention.landmark.carry.in_training",
       "no training step finds blocks of an earlier one"},
      {{"data.sampling=windows", "model.memory=[{kind: knn, layers: [0], stale: {refresh: 0.1}}]"},
       "model.memory.0.stale.refresh",
       "no training step finds entries"},
      {{"model.memory=[{kind: knn, layers: []}]"}, "model.memory.0.layers", "names no layer"},
      {{"model.layer_overrides=[{layers: [], mlp: {kind: none}}]"}, "model.layer_overrides.0.layers", "names no layer"},
      {{"model.stack.kind=drt", "model.stack.drt.groups=1", "model.stack.drt.scores=file"},
       "command line: model.stack.drt.scores=file: model.stack.drt.scores",
       "name it with scores_file"},
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
      {"model.width=9", "model.heads=3", "model.position.kind=none"},
      {"model.width=9", "model.heads=3", "model.position.kind=t5"},
      {"model.attention={softmax: {window: 4, carry: {kind: hidden}}}"},
      {"model.attention={softmax: {carry: {kind: kv, length: 4}}}"},
      {"model.attention={softmax: {window: 5, carry: {kind: kv, length: 5}}}"},
      {"model.attention={softmax: {carry: {kind: kv, length: 4, mask_empty: false}}}"},
      {"model.position.kind=t5", "model.position.t5={buckets: 8, max_distance: 5}"},
      {"model.position.kind=none", "model.attention.softmax.qk_norm=true"},
      {"model.width=9", "model.position.kind=none", "model.head_size=5"},
      {"model.position.kind=rope", "model.attention.softmax.qk_norm=true"},
      {"model.position.kind=alibi", "model.attention.softmax.qk_norm=true"},
      {"model.position.kind=rope", "model.head_size=3", "model.position.rope.dims=2"},
      {"model.position.kind=rope", "model.position.rope.dims=4"},
      {"model.position.kind=alibi", "model.head_size=3"},
      {"model.attention={softmax: {carry: {kind: kv, length: 4, dtype: bf16}}}"},
      {"model.attention={softmax: {same_length: true, carry: {kind: hidden, length: 1}}}"},
      {"model.key_heads=1"},
      {"model.dropout.position=0.1", "model.layer_overrides=[{layers: [1], position: {kind: rope}}]"},
      {"model.initialization={kind: fan_in, scale_residual: false}"},
      // Evaluation carries what training in windows does not.
      {"data.sampling=windows", "model.attention={softmax: {carry: {kind: kv, length: 4}}}"},
      {"data.sampling=windows", "model.memory=[{kind: knn, layers: [0]}]"},
      {"data.sampling=columns", "model.memory=[{kind: knn, layers: [0], stale: {refresh: 0.1}}]"},
  };
  for (const std::vector<std::string>& settings : allowed) EXPECT_NO_THROW(parse(settings)) << settings[0];
}

TEST(Composition, OverridesAreCheckedPerLayer) {
  const auto overrides = [](const std::string& text) {
    return std::vector<std::string>{"model.attention={softmax: {window: 8, carry: {kind: kv}}}",
                                    "model.layer_overrides=" + text};
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
  const auto mixer = [](const std::string& kind, const std::string& options) {
    return fmt::format("model.attention={{kind: {0}, {0}: {{{1}}}}}", kind, options);
  };
  const auto drt = [](const std::string& options) {
    return fmt::format("model.stack={{kind: drt, drt: {{groups: 1, {}}}}}", options);
  };
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
           {"model.memory=[{kind: knn, layers: [0], inverted: {probes: 3}}]", "model.memory.0.inverted.probes",
            "search is not inverted"}}) {
    EXPECT_ERROR(parse({"model.position.kind=none", setting}), ErrorKind::config, key + ": ");
    EXPECT_ERROR(parse({"model.position.kind=none", setting}), ErrorKind::config, message);
  }
}

TEST(Composition, InsertedTokensAreAlike) {
  const auto with_drt = [](const std::string& landmark) {
    return std::vector<std::string>{"model.position.kind=rope", "model.layers=3",
                                    "model.stack={kind: drt, drt: {chunk: 7, groups: 1}}",
                                    "model.attention={kind: landmark, landmark: {" + landmark + "}}"};
  };
  EXPECT_NO_THROW(parse(with_drt("block: 7")));
  EXPECT_ERROR(parse(with_drt("block: 6")), ErrorKind::config,
               "model.stack.drt: drt inserts a token after every 7 (8 with it), another mechanism or layer of the "
               "model after every 6 (7 with it); set them alike");
  EXPECT_ERROR(parse(with_drt("block: 7, in_loss: true")), ErrorKind::config,
               "the tokens that drt inserts are not in the loss, those of another mechanism of the model are in it");
  EXPECT_ERROR(parse({"model.position.kind=rope", "model.attention={kind: hils, hils: {chunk: 8}}",
                      "model.layer_overrides=[{layers: [1], attention: {hils: {chunk: 4}}}]"}),
               ErrorKind::config,
               "model.layer_overrides.0.attention.hils.chunk: hils inserts a token after every 3 (4 with it), another "
               "mechanism or layer of the model after every 7 (8 with it)");
}

TEST(Composition, WholeModelIsChecked) {
  EXPECT_ERROR(parse({"model.heads=3"}), ErrorKind::config, "model.heads: width 8 is no multiple of 3 heads");
  EXPECT_ERROR(parse({"model.heads=4", "model.key_heads=3"}), ErrorKind::config,
               "model.key_heads: 4 heads are no multiple of 3 key heads");
  EXPECT_ERROR(parse({"model.key_heads=4"}), ErrorKind::config, "model.key_heads: 2 heads are no multiple of 4");
  EXPECT_ERROR(parse({"model.position.kind=t5", "model.dropout.position=0.1"}), ErrorKind::config,
               "model.dropout.position: no layer has position xl");
  EXPECT_ERROR(parse({"model.initialization={kind: fan_in, std: 0.1}"}), ErrorKind::config,
               "model.initialization.std: kind: fan_in takes the deviation from the size");
  EXPECT_ERROR(parse({"model.position.rope.base=1"}), ErrorKind::config, "model.position.rope.base");
  EXPECT_ERROR(
      parse({"data.pack=concat", "model.attention={softmax: {carry: {kind: kv, length: 4, mask_empty: false}}}"}),
      ErrorKind::config, "data.pack: concat cannot be combined");
  EXPECT_ERROR(parse({"data.pack=concat",
                      "model.layer_overrides=[{layers: [1], attention: {softmax: "
                      "{carry: {kind: kv, length: 4, mask_empty: false}}}}]"}),
               ErrorKind::config, "data.pack: concat cannot be combined");
  const auto recurrent = [](const std::string& options) {
    return std::vector<std::string>{"data={pack: concat, subsequence: 16}", "model.position.kind=none",
                                    "model.attention={kind: block_recurrent, block_recurrent: {" + options + "}}"};
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
    return flops_of(parse({"model.position.kind=none", fmt::format("model.layers={}", layers),
                           "model.attention={kind: block_recurrent, block_recurrent: {window: 8, states: 5, update: "
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
           {"", ", window: 4", ", window: 2", ", qk_norm: true", ", mask_empty: false", ", attend_self: false"}) {
        std::string carry = cache;
        if (std::string(rest) == ", mask_empty: false") carry.insert(carry.size() - 1, rest);
        const std::string options = carry == cache ? rest : "";
        const std::string attention = "{softmax: {carry: " + carry + options + "}}";
        RunConfig config;
        try {
          config = parse({"model.attention=" + attention, std::string("model.position.kind=") + position});
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
