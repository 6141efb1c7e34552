// Sums gradients over ranks while the sweep still computes others. Each bucket (ParameterParts) is sent as soon as the
// sweep is done with its parameters, in an order that is the same on all ranks: the order in which root's first sweep
// finished them. A parameter that the sweep does not reach sends zeros.
#pragma once

#include <unordered_map>

#include "autograd/tape.h"
#include "core/ranks/ranks.h"
#include "trainers/optimizer/parameter_parts.h"

namespace quire {

class GradientReducer {
 public:
  // Store and parts must outlive this.
  GradientReducer(const ParameterStore& store, const ParameterParts& parts);

  // Call before the last sweep of a step, with its tape. A rank without rows does not call it.
  void watch(Tape& tape, Ranks& ranks);
  // Call after the sweep: sends everything that was not sent yet. The caller waits for the collectives.
  void flush(Ranks& ranks);
  // Call after the update: every rank receives the weights that the others have updated.
  void gather_values(Ranks& ranks) const;

  // Returns the share of the elements that were summed before the last sweep was over.
  double overlap() const { return overlap_; }

 private:
  void used(const Gradient* parameter, Ranks& ranks);
  void leave(size_t bucket, Ranks& ranks);
  void learn_order(Ranks& ranks);
  void begin_anew();

  const ParameterStore& store_;
  const ParameterParts& parts_;
  std::unordered_map<const Gradient*, size_t> bucket_of_;
  std::vector<size_t> order_;  // buckets in the order of sending; empty before the first step
  size_t left_ = 0;            // the number of entries of order_ that were sent
  std::vector<size_t> open_;   // for each bucket, the number of parameters that the sweep may still add to
  std::vector<size_t> done_;   // buckets in the order in which this rank's sweep finished them
  int64_t begun_before_ = 0;   // operations that had finished when the step began
  double overlap_ = 0;
};

}  // namespace quire
