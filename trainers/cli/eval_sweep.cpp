#include "trainers/cli/eval_sweep.h"

#include <algorithm>

#include "core/check.h"
#include "core/config/config_node.h"

namespace quire {

namespace {

struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

std::string key_of(const std::string& argument) {
  return argument.substr(0, argument.find('='));
}

// Returns the values as the list in YAML that they are.
ConfigNode list_of(const std::string& argument, const std::string& values) {
  try {
    return parse_yaml("values: [" + values + "]", "--sweep");
  } catch (const Error&) {
    fail(ErrorKind::config, "--sweep {}: expects values between commas, each written as in YAML", argument);
  }
}

Sweep parse(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail(ErrorKind::config, "--sweep {}: expects KEY=V1,V2, as in data.subsequence=256,1024", argument);
  }
  Sweep sweep{key_of(argument), {}};
  const ConfigNode list = list_of(argument, argument.substr(equals + 1));
  for (const ConfigEntry& entry : list.entries.front().value.entries) {
    const bool empty = entry.value.kind == ConfigNode::Kind::null;
    sweep.values.push_back(empty ? "" : flow_yaml(entry.value));
  }
  if (sweep.values.empty()) fail(ErrorKind::config, "--sweep {}: a value is empty", argument);
  for (auto value = sweep.values.begin(); value != sweep.values.end(); ++value) {
    if (value->empty()) fail(ErrorKind::config, "--sweep {}: a value is empty", argument);
    if (std::find(sweep.values.begin(), value, *value) != value) {
      fail(ErrorKind::config, "--sweep {}: has the value {} twice", argument, *value);
    }
  }
  return sweep;
}

}  // namespace

std::vector<KeyValues> combinations_of(const std::vector<std::string>& sweeps,
                                       const std::vector<std::string>& overrides) {
  std::vector<std::string> keys;
  for (const std::string& text : overrides) keys.push_back(key_of(text));
  std::vector<KeyValues> combinations(1);
  for (const std::string& argument : sweeps) {
    const Sweep sweep = parse(argument);
    if (std::find(keys.begin(), keys.end(), sweep.key) != keys.end()) {
      fail(ErrorKind::config, "--sweep {}: {} is given twice", argument, sweep.key);
    }
    keys.push_back(sweep.key);
    std::vector<KeyValues> longer;
    for (const KeyValues& combination : combinations) {
      for (const std::string& value : sweep.values) {
        longer.push_back(combination);
        longer.back().emplace_back(sweep.key, value);
      }
    }
    combinations = std::move(longer);
  }
  return combinations;
}

}  // namespace quire
