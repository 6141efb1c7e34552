// The configuration of a model as keys and values, for export: what a key means is written once, at its struct.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainers/setup/config.h"

namespace quire {

class LayerKeys {
 public:
  explicit LayerKeys(LayerConfig layer);
  std::string text(const std::string& key) const;              // empty where there is no such key
  std::optional<double> number(const std::string& key) const;  // nothing for none
  bool flag(const std::string& key) const;
  nlohmann::json json(const std::string& key) const;  // null for none

 private:
  std::map<std::string, std::string> values_;  // as YAML
};

// Says whether two models compute the same: what only training and kernels differ in does not count.
bool compute_the_same(const ModelConfig& a, const ModelConfig& b);

}  // namespace quire
