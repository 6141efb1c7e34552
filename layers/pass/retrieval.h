// Records which past spans of its document each query has read, from mechanisms that choose among them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/batch.h"
#include "layers/pass/telemetry.h"

namespace quire {

struct Retrieval {
  int64_t row, t;      // the query
  int64_t head;        // -1: all heads read the same
  int64_t begin, end;  // positions of the document, [begin, end), all before the query's
  double weight;       // its share of what the query's head has retrieved; they sum to 1
  // The share of the head's result that comes from elsewhere, such as local attention: the same for all spans of a
  // query and head. The span itself has the share (1 - local) * weight.
  double local;
};

using Retrievals = std::map<std::string, std::vector<Retrieval>>;  // by the path of the layer

// NAME.distance: the mean number of positions from a span's last position to the query's, by weight.
void report_distances(const Retrievals& retrieved, const Batch& batch, Telemetry& telemetry);

}  // namespace quire
