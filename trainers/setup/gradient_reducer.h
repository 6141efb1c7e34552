// Sums gradients over ranks while the sweep still computes others. The ranges of the arena that travel at once
// (ParameterParts) leave as soon as the sweep is done with their parameters, in an order that is the same on all ranks:
// that in which root's first sweep was done with them. A parameter that the sweep does not reach sends zeros.
#pragma once

#include <unordered_map>

#include "autograd/tape.h"
#include "core/ranks/ranks.h"
#include "trainers/optimizer/parameter_parts.h"

namespace quire {

class GradientReducer {
 public:
  // Store and parts outlive this.
  GradientReducer(const ParameterStore& store, const ParameterParts& parts);

  // Before the last sweep of a step, on its tape. A rank without rows has none.
  void watch(Tape& tape, Ranks& ranks);
  // After it: everything that has not left goes now. The caller waits for the collectives.
  void flush(Ranks& ranks);
  // After the update: every rank gets the weights that the others have updated.
  void gather_values(Ranks& ranks) const;

  // The share of the elements that were summed before the last sweep was over.
  double overlap() const { return overlap_; }

 private:
  void used(const Gradient* parameter, Ranks& ranks);
  void leave(size_t bucket, Ranks& ranks);
  void learn_order(Ranks& ranks);
  void begin_anew();

  const ParameterStore& store_;
  const ParameterParts& parts_;
  std::unordered_map<const Gradient*, size_t> bucket_of_;
  std::vector<size_t> order_;  // buckets as they leave; empty before the first step
  size_t left_ = 0;            // of order_
  std::vector<size_t> open_;   // parameters of each bucket that the sweep may still add to
  std::vector<size_t> done_;   // buckets as this rank's sweep is done with them
  int64_t begun_before_ = 0;   // operations that were finished when the step began
  double overlap_ = 0;
};

}  // namespace quire
