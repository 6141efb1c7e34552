// Sums and copies of tensors between the ranks of a run, on the device of the tensors. Every rank begins the same
// operations in the same order. An operation begins when what the device was given before is done, and goes on beside
// what is computed afterwards; nothing may touch its tensors before wait(). Sums are taken in the order of ranks, so
// every rank gets the same bits, and the same bits again with the same number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace quire {

// Where the part of each rank begins, and the end of the last one: size() + 1 elements of a vector, not decreasing.
using PartBounds = std::vector<int64_t>;

class Collectives {
 public:
  Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  virtual ~Collectives();

  // values: f32 or f64, contiguous, of the same size on all ranks; [N] where there are bounds.
  // Each rank ends with the sums of all.
  virtual void all_reduce(const Tensor& values) = 0;
  // Rank r ends with the sums of its part [bounds[r], bounds[r + 1]); the other elements mean nothing afterwards.
  virtual void reduce_scatter(const Tensor& values, const PartBounds& bounds) = 0;
  // Each rank ends with the parts of all.
  virtual void all_gather(const Tensor& values, const PartBounds& bounds) = 0;

  // What is computed from now on finds every operation done.
  virtual void wait() = 0;
  // How many operations are done, of all that were ever begun.
  virtual int64_t finished() const = 0;

  // One line for the start of a run: the library, its version and what the bits of sums depend on. Empty: nothing to
  // say.
  virtual std::string description() const;
};

}  // namespace quire
