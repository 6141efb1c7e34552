// Checks which options belong to an optimizer's kind, and which parameters a group takes.
#include "trainers/optimizer/optimizer_config.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "trainers/optimizer/optimizer.h"
#include "trainers/setup/config.h"

namespace quire {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_config<RunConfig>(text, "run.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    return error.what();
  }
  return "no error";
}

TEST(OptimizerConfig, KeysOfAnotherKindAreRefused) {
  const std::pair<const char*, const char*> faults[] = {
      {"optimizer: {kind: adafactor, betas: [0.8, 0.95]}",
       "run.yaml:1:30: optimizer.betas: means nothing here: only optimizer.kind adamw and muon have it; leave it out"},
      {"optimizer: {kind: adafactor, eps: 1e-7}", "optimizer.eps: means nothing here"},
      {"optimizer: {betas: [0.8, 0.95], kind: adafactor}", "optimizer.betas: means nothing here"},  // in any order
      {"optimizer: {momentum: 0.9}",
       "optimizer.momentum: means nothing here: only optimizer.kind adafactor and muon have it"},
      {"optimizer: {nesterov: false}", "optimizer.nesterov: means nothing here: only optimizer.kind muon has it"},
      {"optimizer: {kind: adafactor, ns_steps: 4}", "optimizer.ns_steps: means nothing here"},
      {"optimizer: {kind: muon, ns_steps: 0}", "optimizer.ns_steps"},
      {"optimizer: {kind: muon, eps1: 1e-20}", "optimizer.eps1: means nothing here"},
      {"optimizer: {update_clip: 2}", "optimizer.update_clip: means nothing here"},
      {"optimizer: {kind: adafactor, eps2: 1e-2}", "optimizer.parameter_scale is false"},
      {"optimizer: {kind: adafactor, relative_step: true, lr: 2e-3}", "optimizer.relative_step sets the learning rate"},
      {"optimizer: {kind: adafactor, relative_step: true}", "schedule.kind: optimizer.relative_step has its own"},
      {"optimizer: {ema: {evaluate: true}}", "optimizer.ema.evaluate: means nothing here: optimizer.ema.decay is none"},
      {"optimizer: {ema: {decay: 1}}", "optimizer.ema.decay: must be above 0"},
      {"optimizer: {kind: sgd}", "one of adamw, adafactor, muon"},
  };
  for (const auto& [text, message] : faults) {
    EXPECT_NE(error_of(text).find(message), std::string::npos) << text << "\n" << error_of(text);
  }
}

TEST(OptimizerConfig, WhatIsWrittenReadsBackAndOverridesMayChangeTheKind) {
  const RunConfig adafactor = parse_config<RunConfig>(
      "optimizer: {kind: adafactor, parameter_scale: true, eps2: 0.01, ema: {decay: 0.9, evaluate: true}}", "run.yaml");
  const std::string written = dump_config(adafactor);
  EXPECT_EQ(written.find("betas"), std::string::npos);
  EXPECT_EQ(dump_config(parse_config<RunConfig>(written, "dump")), written);
  EXPECT_EQ(dump_config_minimal(adafactor),
            "optimizer:\n  kind: adafactor\n  parameter_scale: true\n  eps2: 0.01\n  ema:\n    decay: 0.9\n"
            "    evaluate: true\n");
  // The written keys of the other kind go; one that is typed is refused all the same.
  const RunConfig changed = with_overrides(adafactor, {"optimizer.kind=adamw"});
  EXPECT_EQ(changed.optimizer.eps2, OptimizerConfig{}.eps2);
  EXPECT_THROW(with_overrides(adafactor, {"optimizer.betas=[0.8, 0.95]"}), Error);
  EXPECT_THROW(require_resumable(diff_configs(adafactor, changed)), Error);
  EXPECT_NO_THROW(
      require_resumable(diff_configs(adafactor, with_overrides(adafactor, {"optimizer.parameter_scale=false"}))));
}

TEST(OptimizerConfig, RelativeStepIsCappedAndFallsWithTheRoot) {
  OptimizerConfig config;
  config.lr = 3;
  EXPECT_EQ(peak_learning_rate(config, 5), 3);
  config.relative_step = true;
  EXPECT_EQ(peak_learning_rate(config, 100), 0.01);
  EXPECT_EQ(peak_learning_rate(config, 1000000), 0.001);
}

// a.weight [2, 3], a.bias [3], b.weight [4]: the matrix decays.
struct Parameters {
  Parameters() {
    store.parameter("a.weight", {2, 3}, {}, true);
    store.parameter("a.bias", {3}, {}, false);
    store.parameter("b.weight", {4}, {}, false);
  }
  ParameterStore store;
};

OptimizerConfig optimizer(const std::string& groups) {
  return parse_config<OptimizerConfig>("{weight_decay: 0.5, groups: " + groups + "}", "o.yaml");
}

TEST(ParameterGroups, TheFirstMatchCounts) {
  const Parameters parameters;
  const OptimizerConfig config =
      optimizer("[{match: [\"*.bias\", \"x.*\"], weight_decay: 0.25}, {match: [\"a.*\"], lr_scale: 0.1}]");
  const std::vector<ParameterSettings> settings = parameter_settings(parameters.store, config);
  ASSERT_EQ(settings.size(), 3U);
  EXPECT_EQ(settings[0].weight_decay, 0.5);
  EXPECT_EQ(settings[0].lr_scale, 0.1);
  EXPECT_EQ(settings[0].group, 1);
  EXPECT_EQ(settings[1].weight_decay, 0.25);  // a vector, but asked for by name
  EXPECT_EQ(settings[1].lr_scale, 1);
  EXPECT_EQ(settings[1].group, 0);
  EXPECT_EQ(settings[2].weight_decay, 0);
  EXPECT_EQ(settings[2].group, -1);
  EXPECT_EQ(describe_groups(parameters.store, config),
            (std::vector<std::string>{
                "optimizer.groups.0: 1 parameters, 3 weights, weight decay 0.25, learning rate x 1",
                "optimizer.groups.1: 1 parameters, 6 weights, weight decay as usual, learning rate x 0.1"}));
}

TEST(ParameterGroups, AGlobWithoutEffectIsAFault) {
  const Parameters parameters;
  const auto misspelt = find_group_fault(parameters.store, optimizer("[{match: [\"a.*\", \"embeding.*\"]}]"));
  ASSERT_TRUE(misspelt.has_value());
  EXPECT_EQ(misspelt->key, "groups.0.match.1");
  EXPECT_EQ(misspelt->message, "'embeding.*' matches no parameter; names look like a.weight and b.weight");
  const auto shadowed = find_group_fault(parameters.store, optimizer("[{match: [\"*\"]}, {match: [a.bias]}]"));
  ASSERT_TRUE(shadowed.has_value());
  EXPECT_EQ(shadowed->key, "groups.1.match.0");
  EXPECT_NE(shadowed->message.find("optimizer.groups.0 already took a.bias"), std::string::npos) << shadowed->message;
  EXPECT_FALSE(find_group_fault(parameters.store, optimizer("[{match: [a.bias]}, {match: [\"*\"]}]")).has_value());
}

TEST(ParameterGroups, AreCheckedAgainstTheModelWithoutACorpus) {
  const std::string groups = "optimizer:\n  groups:\n    - {match: [\"embedding.*\", \"blocks.0.*\"], lr_scale: 0.1}\n";
  EXPECT_EQ(error_of(groups), "no error");
  EXPECT_EQ(
      error_of(groups + "    - match: [\"blocks.6.*\"]\n")
          .rfind("run.yaml:4:15: optimizer.groups.1.match.0: 'blocks.6.*' matches no parameter; names look like", 0),
      0U)
      << error_of(groups + "    - match: [\"blocks.6.*\"]\n");
  EXPECT_NE(error_of("optimizer: {groups: [{lr_scale: 2}]}").find("optimizer.groups.0.match: this key is required"),
            std::string::npos);
  EXPECT_NE(error_of("optimizer: {groups: [{match: [], lr_scale: 2}]}").find("needs at least one glob"),
            std::string::npos);
  EXPECT_NE(error_of("optimizer: {groups: [{mach: [a]}]}").find("did you mean optimizer.groups.0.match?"),
            std::string::npos)
      << error_of("optimizer: {groups: [{mach: [a]}]}");
}

}  // namespace
}  // namespace quire
