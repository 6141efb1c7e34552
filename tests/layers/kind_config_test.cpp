// Configuration of kinds: what a text gives a kind of mixer, memory or stack, and what it may not.
#include <gtest/gtest.h>

#include "layers/mechanism/mechanism_registry.h"
#include "layers/mixers/softmax_config.h"
#include "tests/support/expect_error.h"
#include "tests/support/test_mechanisms.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {
namespace {

// The text of a model, whose keys begin in line 5.
RunConfig parse(const std::string& model, const std::vector<std::string>& overrides = {}) {
  register_test_mechanisms();
  return parse_config<RunConfig>("model:\n  width: 8\n  heads: 2\n  layers: 3\n" + model, "run.yaml", overrides);
}

// A setting that chooses a kind somewhere, and where its options stand.
struct Choice {
  std::string setting;
  std::string options;
};

Choice choice_of(const Mechanism& mechanism) {
  switch (mechanism.role) {
    case Role::mixer:
      return {"model.attention.kind=" + mechanism.kind, "model.attention." + mechanism.kind};
    case Role::memory:
      return {"model.memory=[{kind: " + mechanism.kind + ", layers: [1]}]", "model.memory.0"};
    case Role::stack:
      break;
  }
  return {"model.stack.kind=" + mechanism.kind, "model.stack." + mechanism.kind};
}

std::vector<ConfigSetting> settings_of(const RunConfig& config) {
  RunConfig copy = config;
  return list_settings(StructRef<RunConfig>(copy));
}

std::string value_of(const RunConfig& config, const std::string& key) {
  for (const ConfigSetting& setting : settings_of(config)) {
    if (setting.key == key) return setting.value;
  }
  return "absent";
}

void expect_same(const RunConfig& config, const std::string& text, const std::string& what) {
  std::string differences;
  for (const ConfigDifference& d : diff_configs(config, parse_config<RunConfig>(text, "dumped.yaml"))) {
    differences += d.key + ": " + d.before + " became " + d.after + "\n";
  }
  EXPECT_EQ(differences, "") << what << "\n" << text;
}

TEST(KindConfig, OptionsOfAnotherKindAreRefused) {
  // Place, key, the kind they belong to and the one that was chosen.
  EXPECT_ERROR(parse("  attention: {kind: softmax, vq: {codes: 4}}\n"), ErrorKind::config,
               "run.yaml:5:30: model.attention.vq: belongs to kind: vq, but kind is softmax here; leave it out, or "
               "change model.attention.kind");
  // The kind that nobody wrote is a choice, too.
  EXPECT_ERROR(parse("  attention:\n    vq: {codes: 4}\n"), ErrorKind::config,
               "run.yaml:6:5: model.attention.vq: belongs to kind: vq, but kind is softmax here");
  EXPECT_ERROR(parse("  memory: [{kind: fast_weight, layers: [0], top_k: 3}]\n"), ErrorKind::config,
               "run.yaml:5:45: model.memory.0.top_k: belongs to kind: knn, but kind is fast_weight here");
  EXPECT_ERROR(parse("  memory: [{kind: fast_weight, layers: [0], carry: {length: 3}}]\n"), ErrorKind::config,
               "run.yaml:5:45: model.memory.0.carry: belongs to kind: knn");
  // Options without a kind miss it.
  EXPECT_ERROR(parse("  memory: [{layers: [0], carry: {length: 3}}]\n"), ErrorKind::config,
               "run.yaml:5:12: model.memory.0.kind: this key is required");
  EXPECT_ERROR(parse("  memory: [{kind: knn, layers: [0], chunk: 3}]\n"), ErrorKind::config,
               "run.yaml:5:37: model.memory.0.chunk: belongs to kind: fast_weight, but kind is knn here");
  EXPECT_ERROR(parse("  memory: [{kind: fast_weight, layers: [0], stale: {keep: 1}}]\n"), ErrorKind::config,
               "model.memory.0.stale: belongs to kind: knn");
  EXPECT_ERROR(parse("  layer_overrides: [{layers: [1], attention: {vq: {codes: 4}}}]\n"), ErrorKind::config,
               "model.layer_overrides.0.attention.vq: belongs to kind: vq, but kind is softmax here");
  // Two on one command line contradict each other as much as two in one file.
  EXPECT_ERROR(parse("", {"model.attention.kind=softmax", "model.attention.vq.codes=4"}), ErrorKind::config,
               "command line: model.attention.vq.codes=4: model.attention.vq: belongs to kind: vq");
  // An option that no kind has is a misspelt one.
  EXPECT_ERROR(parse("  memory: [{kind: knn, layers: [0], top_q: 3}]\n"), ErrorKind::config,
               "model.memory.0.top_q: unknown key; did you mean model.memory.0.top_k?");
}

TEST(KindConfig, AnUnknownKindListsTheKnownOnes) {
  EXPECT_ERROR(parse("  attention: {kind: hard}\n"), ErrorKind::config,
               "run.yaml:5:21: model.attention.kind: expects one of softmax, vq");
  EXPECT_ERROR(parse("  memory: [{kind: long, layers: [0]}]\n"), ErrorKind::config,
               "model.memory.0.kind: expects one of knn, ");
  EXPECT_ERROR(parse("  memory: [{kind: long, layers: [0]}]\n"), ErrorKind::config, "fast_weight");
  EXPECT_ERROR(parse("  stack: {kind: tall}\n"), ErrorKind::config, "model.stack.kind: expects one of plain");
}

TEST(KindConfig, AnOverrideOfTheKindDropsTheOldOptions) {
  const std::string vq = "  attention: {kind: vq, vq: {window: 5, codes: 4}}\n";
  const RunConfig softmax = parse(vq, {"model.attention.kind=softmax"});
  EXPECT_EQ(softmax.model.attention.mechanism.kind, "softmax");
  EXPECT_EQ(value_of(softmax, "model.attention.softmax.window"), "none");
  EXPECT_EQ(value_of(softmax, "model.attention.vq.codes"), "absent");
  // Chosen by hand it stays.
  EXPECT_EQ(value_of(parse(vq, {"model.attention.kind=vq"}), "model.attention.vq.codes"), "4");

  const std::string knn = "  memory: [{kind: knn, layers: [1], top_k: 4, stale: {keep: 3}}]\n";
  const RunConfig fast = parse(knn, {"model.memory.0.kind=fast_weight", "model.memory.0.chunk=3"});
  EXPECT_EQ(value_of(fast, "model.memory.0.chunk"), "3");
  EXPECT_EQ(value_of(fast, "model.memory.0.layers"), "[1]");
  EXPECT_EQ(value_of(fast, "model.memory.0.top_k"), "absent");
  expect_same(fast, dump_config(fast), "memory");
}

TEST(KindConfig, EveryKindReadsBackAsWritten) {
  register_test_mechanisms();
  for (const Mechanism* mechanism : mechanisms()) {
    const Choice choice = choice_of(*mechanism);
    // Not every kind goes with the default positions.
    const std::string position = "model.position.kind=none";
    const RunConfig chosen = parse("", {position, choice.setting});
    std::vector<RunConfig> configs{chosen};
    // Each option with a whole number, made one more or, where that breaks a rule, twice as large; one that may be left
    // out gets a number.
    for (const ConfigSetting& setting : settings_of(chosen)) {
      if (!setting.key.starts_with(choice.options + ".")) continue;
      const bool none = setting.value == "none";
      const bool number = setting.value.find_first_not_of("0123456789") == std::string::npos;
      if ((!none && !number) || setting.value.size() > 6) continue;
      const int64_t value = none ? 2 : std::stoll(setting.value);
      for (const int64_t other : {value + 1, 2 * value}) {
        if (other == value) continue;
        try {
          configs.push_back(parse("", {position, choice.setting, setting.key + "=" + std::to_string(other)}));
          break;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::config);
        }
      }
    }
    for (const RunConfig& config : configs) {
      expect_same(config, dump_config(config), mechanism->kind + " in full");
      expect_same(config, dump_config_minimal(config), mechanism->kind + " in short");
    }
    // The changed values were not left out of what is compared.
    if (mechanism->options == nullptr) continue;
    ASSERT_GT(configs.size(), 1U) << mechanism->kind;
    for (size_t i = 1; i < configs.size(); ++i) EXPECT_EQ(diff_configs(chosen, configs[i]).size(), 1U);
  }
}

TEST(KindConfig, TheShortFormLeavesOutDefaultsOfTheKind) {
  const std::string text = dump_config_minimal(parse("  attention: {kind: vq, vq: {codes: 4}}\n"));
  EXPECT_NE(text.find("kind: vq"), std::string::npos) << text;
  EXPECT_NE(text.find("codes: 4"), std::string::npos) << text;
  EXPECT_EQ(text.find("block"), std::string::npos) << text;
}

TEST(KindConfig, LayersMayHaveOtherKinds) {
  const RunConfig config = parse(
      "  layer_overrides:\n"
      "    - {layers: [0], attention: {kind: vq, vq: {codes: 4}}}\n"
      "    - {layers: [2], attention: {softmax: {window: 3}}}\n");
  const std::vector<LayerConfig> layers = config.model.layer_configs();
  EXPECT_EQ(layers[0].attention.mechanism.kind, "vq");
  EXPECT_EQ(layers[1].attention.mechanism.kind, "softmax");
  EXPECT_EQ(layers[2].attention.mechanism.kind, "softmax");
  EXPECT_EQ(layers[2].attention.mechanism.options.get<SoftmaxConfig>().window, 3);
  expect_same(config, dump_config(config), "in full");
  expect_same(config, dump_config_minimal(config), "in short");
  // Others keep the model's kind with its options.
  const RunConfig back = parse(
      "  attention: {kind: vq, vq: {codes: 4}}\n"
      "  layer_overrides: [{layers: [1], attention: {kind: softmax}}]\n");
  EXPECT_EQ(back.model.layer_configs()[1].attention.mechanism.kind, "softmax");
  LayerConfig last = back.model.layer_configs()[2];
  bool found = false;
  for (const ConfigSetting& setting : list_settings(StructRef<LayerConfig>(last))) {
    if (setting.key == "attention.vq.codes") found = setting.value == "4";
  }
  EXPECT_TRUE(found);
}

// An entry's changes do not reach the next one: each begins with the model's own attention.
TEST(KindConfig, OverridesOfLayersDoNotSeeEachOther) {
  const std::string two =
      "  attention: {kind: vq, vq: {codes: 4}}\n"
      "  layer_overrides:\n"
      "    - {layers: [0], attention: {kind: softmax}}\n"
      "    - {layers: [1], attention: {vq: {codes: 5}}}\n";
  EXPECT_NO_THROW(parse(two));
  EXPECT_ERROR(parse("  layer_overrides:\n"
                     "    - {layers: [0], attention: {kind: vq}}\n"
                     "    - {layers: [1], attention: {vq: {codes: 5}}}\n"),
               ErrorKind::config, "model.layer_overrides.1.attention.vq: belongs to kind: vq");
}

// The section of the old kind is not written into the run's configuration, where nobody could tell it from a mistake.
TEST(KindConfig, AnOverrideOfALayersKindReadsBackToo) {
  const RunConfig config = parse("  layer_overrides: [{layers: [1], attention: {kind: vq, vq: {codes: 4}}}]\n",
                                 {"model.layer_overrides.0.attention.kind=softmax"});
  EXPECT_EQ(config.model.layer_configs()[1].attention.mechanism.kind, "softmax");
  EXPECT_NO_THROW(expect_same(config, dump_config(config), "in full"));
  EXPECT_NO_THROW(evaluation_config(config));
}

struct FixedOptions {
  int64_t top_k = 2;
  int64_t size = 2;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("top_k", top_k, {.help = "stays"});
    v.field("size", size, {.help = "may differ", .at_evaluation = true});
  }
};

// Two memories have an option of the same name, and only one of them lets it be another at evaluation.
TEST(KindConfig, WhatMayDifferFollowsTheFieldOfTheKind) {
  register_test_mechanisms();
  if (find_mechanism(Role::memory, "fixed") == nullptr) {
    Mechanism fixed = mechanism(Role::memory, "trivial_register");
    fixed.kind = "fixed";
    fixed.options = [] { return ConfigBox(FixedOptions{}); };
    register_mechanism(fixed);
  }
  const RunConfig fixed = parse("  memory: [{kind: fixed, layers: [1]}]\n");
  EXPECT_ERROR(evaluation_config(fixed, {"model.memory.0.top_k=3"}), ErrorKind::config,
               "model.memory.0.top_k: cannot differ from the training run");
  EXPECT_NO_THROW(evaluation_config(fixed, {"model.memory.0.size=3"}));
  EXPECT_NO_THROW(evaluation_config(parse("  memory: [{kind: knn, layers: [1]}]\n"), {"model.memory.0.top_k=3"}));
}

}  // namespace
}  // namespace quire::test
