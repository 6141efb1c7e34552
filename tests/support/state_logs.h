// Logs of a state layout by name.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "layers/state/state_layout.h"

namespace quire::test {

inline LogId log_named(const StateLayout& layout, const std::string& name) {
  for (size_t i = 0; i < layout.logs().size(); ++i) {
    if (layout.logs()[i].name == name) return {static_cast<int>(i), layout.logs()[i].group};
  }
  ADD_FAILURE() << "no log " << name;
  return {};
}

}  // namespace quire::test
