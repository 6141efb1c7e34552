#include "trainers/optimizer/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

// '*' and '?' also match dots.
bool matches(const std::string& glob, const std::string& name) {
  return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

int group_of(const std::string& name, const std::vector<ParameterGroupConfig>& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const std::string& glob : groups[i].match) {
      if (matches(glob, name)) return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

std::vector<ParameterSettings> parameter_settings(const ParameterStore& store, const OptimizerConfig& config) {
  std::vector<ParameterSettings> all;
  for (const ParameterStore::Entry& entry : store.entries()) {
    ParameterSettings settings{entry.decays ? config.weight_decay : 0.0, 1.0, group_of(entry.name, config.groups)};
    if (settings.group >= 0) {
      const ParameterGroupConfig& group = config.groups[static_cast<size_t>(settings.group)];
      settings.weight_decay = group.weight_decay.value_or(settings.weight_decay);
      settings.lr_scale = group.lr_scale;
    }
    all.push_back(settings);
  }
  return all;
}

double decay_of_step(const OptimizerConfig& config, const ParameterSettings& settings, double learning_rate) {
  const double rate = settings.lr_scale * (config.decay_with_rate ? learning_rate : 1.0);
  return rate * settings.weight_decay;
}

std::optional<GroupFault> find_group_fault(const ParameterStore& store, const OptimizerConfig& config) {
  for (size_t i = 0; i < config.groups.size(); ++i) {
    for (size_t j = 0; j < config.groups[i].match.size(); ++j) {
      const std::string& glob = config.groups[i].match[j];
      const std::string key = fmt::format("groups.{}.match.{}", i, j);
      const ParameterStore::Entry* matched = nullptr;
      bool counts = false;
      for (const ParameterStore::Entry& entry : store.entries()) {
        if (!matches(glob, entry.name)) continue;
        matched = &entry;
        counts = counts || group_of(entry.name, config.groups) == static_cast<int>(i);
      }
      if (matched == nullptr) {
        return GroupFault{key, fmt::format("'{}' matches no parameter; names look like {} and {}", glob,
                                           store.entries().front().name, store.entries().back().name)};
      }
      if (!counts) {
        return GroupFault{key, fmt::format("'{}' has no effect: optimizer.groups.{} already took {}; the first group "
                                           "that matches counts",
                                           glob, group_of(matched->name, config.groups), matched->name)};
      }
    }
  }
  return std::nullopt;
}

std::vector<std::string> describe_groups(const ParameterStore& store, const OptimizerConfig& config) {
  const std::vector<ParameterSettings> settings = parameter_settings(store, config);
  std::vector<std::string> lines;
  for (size_t i = 0; i < config.groups.size(); ++i) {
    int64_t parameters = 0;
    int64_t weights = 0;
    for (size_t j = 0; j < settings.size(); ++j) {
      if (settings[j].group != static_cast<int>(i)) continue;
      ++parameters;
      weights += store.entries()[j].shape.numel();
    }
    const ParameterGroupConfig& group = config.groups[i];
    lines.push_back(fmt::format(
        "optimizer.groups.{}: {} parameters, {} weights, weight decay {}, learning rate x {}", i, parameters, weights,
        group.weight_decay ? fmt::format("{}", *group.weight_decay) : "as usual", group.lr_scale));
  }
  return lines;
}

}  // namespace quire
