// Parameters of a store by name.
#pragma once

#include <stdexcept>

#include "layers/parameters/parameter_store.h"

namespace quire::test {

inline const ParameterStore::Entry& parameter_named(const ParameterStore& store, const std::string& name) {
  for (const ParameterStore::Entry& entry : store.entries()) {
    if (entry.name == name) return entry;
  }
  throw std::out_of_range("no parameter " + name);
}

inline Tensor gradient_named(const ParameterStore& store, const std::string& name) {
  return ParameterStore::slice(store.gradients(), parameter_named(store, name));
}

}  // namespace quire::test
