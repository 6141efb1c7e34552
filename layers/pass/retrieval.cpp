#include "layers/pass/retrieval.h"

namespace quire {

void RetrievedDistances::add(const std::string& layer, const Retrieval& one, const Batch& batch) {
  const int64_t position = batch.position[static_cast<size_t>(batch.at(one.row, one.t))];
  Sums& sums = sums_[layer];
  sums.distance += one.weight * static_cast<double>(position - one.end + 1);
  sums.weight += one.weight;
}

void RetrievedDistances::report(Telemetry& telemetry) const {
  for (const auto& [layer, sums] : sums_) {
    if (sums.weight > 0) telemetry.emplace_back(layer + ".distance", sums.distance / sums.weight);
  }
}

}  // namespace quire
