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

// The mean number of positions from a span's last position to the query's, by weight, of each layer. It takes one
// retrieval after the other, since all of a step, one for each query, head and span, would fill the memory.
class RetrievedDistances {
 public:
  void add(const std::string& layer, const Retrieval& one, const Batch& batch);
  // Adds NAME.distance of each layer.
  void report(Telemetry& telemetry) const;

 private:
  struct Sums {
    double distance = 0, weight = 0;
  };
  std::map<std::string, Sums> sums_;
};

}  // namespace quire
