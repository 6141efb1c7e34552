// Auxiliary losses of a model. Each is a sum over positions whose count follows from the batch alone, so that it is
// known before the forward pass: sums and counts cross micro-batches and ranks, means never do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"

namespace quire {

using BatchCount = int64_t (*)(const Batch& batch);
int64_t count_tokens(const Batch& batch);     // positions that hold a token
int64_t count_positions(const Batch& batch);  // all of them, padding too

struct LossTermId {
  int index = -1;
  double weight = 0;  // of the mean; 0: it is only reported
};

class LossTable {
 public:
  // Layers that declare the same name add to one sum, each with a weight of its own. Error(internal) without a count,
  // and when another layer has declared the name with another count.
  LossTermId add(const std::string& name, double weight, BatchCount count);
  int64_t size() const { return static_cast<int64_t>(terms_.size()); }
  std::vector<std::pair<std::string, int64_t>> counts(const Batch& batch) const;  // by index

 private:
  struct Term {
    std::string name;
    BatchCount count;
  };
  std::vector<Term> terms_;
};

}  // namespace quire
