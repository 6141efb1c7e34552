// Layers of other heads, normalisation and feed-forward layers than the model's (model.layer_overrides).
#include <gtest/gtest.h>

#include <map>

#include "tests/support/expect_error.h"
#include "trainers/plan/benchmark.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

RunConfig parse(const std::vector<std::string>& settings) {
  return parse_config<RunConfig>(
      "model: {width: 8, heads: 2, layers: 2, position: {kind: rope}, mlp: {kind: swiglu, hidden: 12}}\n", "run.yaml",
      settings);
}

RunConfig overridden(const std::string& override, const std::vector<std::string>& others = {}) {
  std::vector<std::string> settings{"model.layer_overrides=[{layers: [1], " + override + "}]"};
  settings.insert(settings.end(), others.begin(), others.end());
  return parse(settings);
}

TEST(LayerSizes, AnOverrideGivesALayerItsOwnParameters) {
  const RunConfig config =
      overridden("heads: 3, key_heads: 1, head_size: 6, norm: {kind: layer}, mlp: {kind: gelu, hidden: 5, bias: true}");
  ParameterStore store;
  const Network network(store, config.model, 11, DType::f32);
  std::map<std::string, Shape> shapes;
  for (const ParameterStore::Entry& entry : store.entries()) shapes[entry.name] = entry.shape;
  const std::map<std::string, Shape> expected{
      {"embedding.weight", {11, 8}},
      {"norm.weight", {8}},
      {"blocks.0.attention_norm.weight", {8}},
      {"blocks.0.attention.query.weight", {8, 8}},
      {"blocks.0.attention.key.weight", {8, 8}},
      {"blocks.0.attention.value.weight", {8, 8}},
      {"blocks.0.attention.out.weight", {8, 8}},
      {"blocks.0.mlp_norm.weight", {8}},
      {"blocks.0.mlp.gate.weight", {12, 8}},
      {"blocks.0.mlp.up.weight", {12, 8}},
      {"blocks.0.mlp.down.weight", {8, 12}},
      {"blocks.1.attention_norm.weight", {8}},
      {"blocks.1.attention_norm.bias", {8}},
      {"blocks.1.attention.query.weight", {18, 8}},
      {"blocks.1.attention.key.weight", {6, 8}},
      {"blocks.1.attention.value.weight", {6, 8}},
      {"blocks.1.attention.out.weight", {8, 18}},
      {"blocks.1.mlp_norm.weight", {8}},
      {"blocks.1.mlp_norm.bias", {8}},
      {"blocks.1.mlp.up.weight", {5, 8}},
      {"blocks.1.mlp.up.bias", {5}},
      {"blocks.1.mlp.down.weight", {8, 5}},
      {"blocks.1.mlp.down.bias", {8}},
  };
  EXPECT_EQ(shapes, expected);
}

TEST(LayerSizes, WhatAnEntryDoesNotNameStays) {
  const RunConfig config =
      parse({"model.layer_overrides=[{layers: [0, 1], mlp: {hidden: 5}}, {layers: [-1], mlp: "
             "{kind: none}, norm: {eps: 0.5}}]",
             "model.norm={kind: layer, last: false}"});
  const std::vector<LayerConfig> layers = config.model.layer_configs();
  EXPECT_EQ(layers[0].mlp.kind, MlpKind::swiglu);
  EXPECT_EQ(layers[0].mlp.hidden, 5);
  EXPECT_EQ(layers[1].mlp.kind, MlpKind::none);
  EXPECT_EQ(layers[1].norm.kind, NormKind::layer);
  EXPECT_EQ(layers[1].norm.eps, 0.5);
  EXPECT_EQ(layers[1].heads, 2);
  EXPECT_FALSE(config.model.as_seen_by(layers[1]).norm.last);
}

// Two equal layers of other sizes cost what a model of these sizes costs, and a layer of its own half of that.
TEST(LayerSizes, OperationsAreCountedByLayer) {
  const auto flops = [](const RunConfig& config) { return training_flops(config.model, 11, 2, 16); };
  const double small = flops(parse({}));
  const double large = flops(parse({"model.heads=4", "model.head_size=6", "model.mlp={kind: gelu, hidden: 50}"}));
  const std::string sizes = "heads: 4, head_size: 6, mlp: {kind: gelu, hidden: 50}";
  EXPECT_GT(large, small);
  EXPECT_DOUBLE_EQ(flops(overridden(sizes)), (small + large) / 2);
  EXPECT_DOUBLE_EQ(flops(parse({"model.layer_overrides=[{layers: [0, 1], " + sizes + "}]"})), large);
}

TEST(LayerSizes, OperationsOfLayersThatReadChunksAreCountedByLayer) {
  const auto flops = [](const std::string& layers) {
    return training_flops(parse({"model.layers=4", "model.stack={kind: drt, drt: {chunk: 3, groups: 1, key_heads: 2}}",
                                 "model.layer_overrides=[{layers: " + layers + ", heads: 4, head_size: 4}]"})
                              .model,
                          11, 2, 16);
  };
  EXPECT_GT(flops("[3]") - flops("[0]"), 0) << "layer 3 also reads chunks with its heads";
  EXPECT_DOUBLE_EQ(flops("[2]"), flops("[3]"));
}

TEST(LayerSizes, CombinationsThatCannotWorkAreRefused) {
  const auto refused = [](const std::string& override, const std::string& message,
                          const std::vector<std::string>& others = {}) {
    EXPECT_ERROR(overridden(override, others), ErrorKind::config, message);
  };
  refused("heads: 3",
          "model.layer_overrides.0.heads: width 8 is no multiple of 3 heads; set head_size or other heads "
          "(layer 1)");
  refused("head_size: none", "model.layer_overrides.0.head_size: width 8 is no multiple of 3 heads",
          {"model.heads=3", "model.head_size=4"});
  refused("key_heads: 3", "model.layer_overrides.0.key_heads: 2 heads are no multiple of 3 key heads (layer 1)");
  refused("heads: 1", "model.layer_overrides.0.heads: 1 heads are no multiple of 2 key heads (layer 1)",
          {"model.key_heads=2"});
  refused("heads: 1, head_size: 3",
          "model.position.rope.dims: position rope rotates pairs of features: the number must be even (layer 1)");
  refused("norm: {last: false}", "model.layer_overrides.0.norm.last: unknown key");
  refused("heads: 4, attention: {kind: block_recurrent}", "block_recurrent has keys for every head",
          {"model.key_heads=1"});
}

TEST(LayerSizes, LayersThatShareBiasesOfPositionsHaveEqualHeads) {
  const std::string xl = "model.position={kind: xl}";
  EXPECT_ERROR(overridden("heads: 4", {xl}), ErrorKind::config,
               "model.layer_overrides.0.heads: layer 1 has 4 heads of 2 features, layer 0 has 2 of 4, and both share "
               "the biases of position xl; set position.xl.share_biases to false, or equal heads");
  EXPECT_ERROR(overridden("head_size: 6", {xl}), ErrorKind::config, "layer 1 has 2 heads of 6 features");
  EXPECT_NO_THROW(overridden("heads: 4", {"model.position={kind: xl, xl: {share_biases: false}}"}));
  EXPECT_NO_THROW(overridden("heads: 4, position: {kind: alibi}", {xl}));
  EXPECT_NO_THROW(overridden("key_heads: 1, mlp: {kind: none}", {xl}));
}

TEST(LayerSizes, LayersThatReadChunksKeepWhatTheyShare) {
  const std::string drt = "model.stack={kind: drt, drt: {chunk: 3, groups: 1}}";
  const std::string message = "model.layer_overrides: the layers that read chunks need the head size of the model";
  EXPECT_ERROR(overridden("heads: 4", {drt}), ErrorKind::config, message);
  EXPECT_ERROR(overridden("norm: {placement: post}", {drt}), ErrorKind::config, message);
  EXPECT_ERROR(overridden("mlp: {kind: none}", {drt}), ErrorKind::config, message);
  EXPECT_ERROR(overridden("heads: 3, head_size: 4", {drt}), ErrorKind::config,
               "model.stack.drt.key_heads: each key head of chunks is shared by equally many query heads");
  EXPECT_NO_THROW(overridden("heads: 4, head_size: 4, norm: {kind: layer}, mlp: {hidden: 3}", {drt}));
  EXPECT_NO_THROW(parse({drt,
                         "model.layer_overrides=[{layers: [0], heads: 4, norm: {placement: post}, mlp: {kind: "
                         "none}}]"}));
}

}  // namespace
}  // namespace quire::test
