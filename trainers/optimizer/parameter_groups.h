// The weight decay and the learning rate of each parameter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/parameters/parameter_store.h"
#include "trainers/optimizer/optimizer_config.h"

namespace quire {

struct ParameterSettings {
  double weight_decay = 0;
  double lr_scale = 1;
  int group = -1;  // index in optimizer.groups; -1: none matches
};

// Returns one entry per entry of the store, in its order. The parameters need not be allocated.
std::vector<ParameterSettings> parameter_settings(const ParameterStore& store, const OptimizerConfig& config);

// Returns the share of a parameter that weight decay removes in a step with this learning rate.
double decay_of_step(const OptimizerConfig& config, const ParameterSettings& settings, double learning_rate);

struct GroupFault {
  std::string key;  // "groups.0.match.1"
  std::string message;
};
// Returns the first glob that selects no parameter, which is probably misspelt; nothing when there is none.
std::optional<GroupFault> find_group_fault(const ParameterStore& store, const OptimizerConfig& config);

// Returns one line per group, for logs: "optimizer.groups.0: 2 parameters, 512 weights, weight decay 0, learning rate x
// 0.1".
std::vector<std::string> describe_groups(const ParameterStore& store, const OptimizerConfig& config);

}  // namespace quire
