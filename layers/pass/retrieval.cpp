#include "layers/pass/retrieval.h"

namespace quire {

void report_distances(const Retrievals& retrieved, const Batch& batch, Telemetry& telemetry) {
  for (const auto& [name, all] : retrieved) {
    double distance = 0;
    double weight = 0;
    for (const Retrieval& one : all) {
      const int64_t position = batch.position[static_cast<size_t>(batch.at(one.row, one.t))];
      distance += one.weight * static_cast<double>(position - one.end + 1);
      weight += one.weight;
    }
    if (weight > 0) telemetry.emplace_back(name + ".distance", distance / weight);
  }
}

}  // namespace quire
