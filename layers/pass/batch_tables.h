// Tables that layers derive from a batch, each made and uploaded once a forward pass whichever layers read it.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/tensor.h"

namespace quire {

class BatchTables {
 public:
  struct Key {
    uint32_t kind;                 // hash_scope of a name
    std::vector<int64_t> numbers;  // everything that the table depends on beside the batch
    auto operator<=>(const Key&) const = default;
  };
  // Returns the table of a key; make is called the first time.
  Tensor find(const Key& key, const std::function<Tensor()>& make);
  // Holds the tables made so far.
  int64_t size() const { return static_cast<int64_t>(tables_.size()); }

 private:
  std::map<Key, Tensor> tables_;
};

}  // namespace quire
