// Checks which parts can be combined. Rules about positions are here, those of a mechanism in its descriptor; the check
// of ModelConfig and the tests read both.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "layers/mechanism/mechanism.h"

namespace quire {

// These rules hold for the layers of every mixer.
std::span<const CompositionRule> attention_rules();

// A rule that a model breaks: the key, relative to the model's configuration, and why.
struct RuleFault {
  std::string key;
  std::string message;
};
// Returns the first broken one of a list of rules of the mechanisms, for example Mechanism::rules_of_new_runs.
std::optional<RuleFault> find_rule_fault(const ModelConfig& model, std::span<const CompositionRule> Mechanism::*rules);

}  // namespace quire
