#include "layers/pass/loss_table.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

int64_t count_tokens(const Batch& batch) {
  return count_positions(batch) - std::count(batch.segment.begin(), batch.segment.end(), -1);
}

int64_t count_positions(const Batch& batch) {
  return batch.rows * batch.length;
}

LossTermId LossTable::add(const std::string& name, double weight, BatchCount count) {
  QUIRE_CHECK(count != nullptr,
              "loss term {}: it needs a count that follows from the batch alone; a loss whose count depends on what a "
              "layer computes cannot be scaled over micro-batches and ranks",
              name);
  const auto same = std::find_if(terms_.begin(), terms_.end(), [&](const Term& term) { return term.name == name; });
  if (same == terms_.end()) {
    terms_.push_back({name, count});
    return {static_cast<int>(terms_.size()) - 1, weight};
  }
  if (same->count != count) {
    fail(ErrorKind::config, "loss term {}: layers of one model take its mean over different counts; set them alike",
         name);
  }
  return {static_cast<int>(same - terms_.begin()), weight};
}

std::vector<std::pair<std::string, int64_t>> LossTable::counts(const Batch& batch) const {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const Term& term : terms_) counts.emplace_back(term.name, term.count(batch));
  return counts;
}

}  // namespace quire
