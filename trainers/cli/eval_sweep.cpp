#include "trainers/cli/eval_sweep.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

// Returns the parts of a text between commas outside of brackets, braces and quotes.
std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts{""};
  int depth = 0;
  char quote = '\0';
  for (const char c : text) {
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    if (c != ' ' || !parts.back().empty()) parts.back() += c;
  }
  return parts;
}

std::string key_of(const std::string& argument) {
  return argument.substr(0, argument.find('='));
}

Sweep parse(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail(ErrorKind::config, "--sweep {}: expects KEY=V1,V2, as in data.subsequence=256,1024", argument);
  }
  Sweep sweep{key_of(argument), split_at_commas(argument.substr(equals + 1))};
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
