// Counts what the ranks of a run exchange in one step (trainers/step/step.cpp), without running it.
#pragma once

#include <vector>

#include "trainers/setup/training_state.h"

namespace quire {

// The exchanges of one of N ranks. A step has these collectives, one after the other:
//   a reduce_scatter of every bucket of gradients, while the last backward sweep goes on
//   an all_reduce of every sum of a learner, of the losses and of the squared norm of the gradient
//   an all_gather of every bucket of weights, after the update
struct StepExchange {
  struct Bucket {
    int64_t bytes = 0;     // bytes of gradients, and the same number of weights
    int64_t min_part = 0;  // bytes of the smallest part of a rank
    int64_t max_part = 0;  // bytes of the largest part of a rank
  };
  int64_t ranks = 1;
  std::vector<Bucket> buckets = {};   // in the order of the arena
  std::vector<int64_t> sums = {};     // bytes of each all_reduce
  int64_t host_exchanges = 0;         // exchanges of small host values: targets, and whether to stop
  int64_t host_exchanges_logged = 0;  // additional ones at a step that is logged: telemetry, and peak memory

  int64_t collectives() const { return static_cast<int64_t>(2 * buckets.size() + sums.size()); }
  int64_t arena_bytes() const;
  // Return the bytes that a rank sends, as a mean over ranks: each sends the parts of the others, and receives as many
  // bytes.
  double gradient_bytes() const;
  double weight_bytes() const;
  double sum_bytes() const;
  double bytes_sent() const { return gradient_bytes() + weight_bytes() + sum_bytes(); }
};

// The exchanges of a configuration for any number of ranks. One rank exchanges nothing.
class StepExchanges {
 public:
  explicit StepExchanges(const RunConfig& config);
  StepExchange of(int64_t ranks) const;

 private:
  ParameterParts::Cut cut_;
  std::unique_ptr<TrainingState> training_;  // on Device::meta
  std::vector<int64_t> sums_;
};

}  // namespace quire
