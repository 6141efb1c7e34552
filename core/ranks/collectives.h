// Sums and copies of tensors between the ranks of a run, on the device of the tensors. Every rank begins the same
// operations in the same order. An operation begins when the earlier work of the device is done, and runs beside what
// is computed afterwards; nothing may touch its tensors before wait(). Sums are taken in the order of ranks, so every
// rank gets the same bits, and the same bits again with the same number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace quire {

// The offsets where the part of each rank begins, and the end of the last part: size() + 1 elements, not decreasing.
using PartBounds = std::vector<int64_t>;

class Collectives {
 public:
  Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  virtual ~Collectives();

  // Replaces `values` on each rank by the sums over all ranks. values: f32 or f64, contiguous, of the same size on all
  // ranks.
  virtual void all_reduce(const Tensor& values) = 0;
  // Rank r receives the sums of its part [bounds[r], bounds[r + 1]); the other elements are undefined afterwards.
  // values: [N].
  virtual void reduce_scatter(const Tensor& values, const PartBounds& bounds) = 0;
  // Each rank receives the parts of all ranks. values: [N].
  virtual void all_gather(const Tensor& values, const PartBounds& bounds) = 0;

  // Makes everything that is computed from now on wait for the operations begun so far.
  virtual void wait() = 0;
  // Returns how many of the operations that were ever begun are done.
  virtual int64_t finished() const = 0;

  // Returns one line for the start of a run: the library, its version and what the bits of sums depend on. May be
  // empty.
  virtual std::string description() const;
};

}  // namespace quire
