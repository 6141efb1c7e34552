// Gathers what the layers of a model report, subsequence by subsequence.
#pragma once

#include <map>

#include "core/batch.h"
#include "core/insertion.h"
#include "layers/pass/retrieval.h"
#include "trainers/trace/trace.h"

namespace quire {

class TraceGatherer {
 public:
  // The trace has its tokens; they receive their reads.
  TraceGatherer(Trace& trace, const Insertion& insertion, int64_t top_k)
      : trace_(trace), insertion_(insertion), top_k_(top_k) {}

  // Adds what was read in a pass over a batch of one row. Passes come in the order of the text.
  void add(const Batch& batch, const Retrievals& retrieved);
  // Completes the layers and their order. Nothing may be added afterwards.
  void finish();

 private:
  struct Sums {
    TraceLayer layer;  // sums in place of means
    double weight = 0;
    double distance = 0;
    std::map<std::pair<int32_t, int32_t>, double> spans;
  };
  using Query = std::vector<const Retrieval*>;
  void add_query(const Batch& batch, int32_t number, const Query& query);

  Trace& trace_;
  Insertion insertion_;
  int64_t top_k_;
  std::map<std::string, int32_t> numbers_;
  std::vector<Sums> sums_;  // by number
};

}  // namespace quire
