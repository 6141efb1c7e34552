// The common part of CPU collectives, independent of how the ranks reach each other.
#pragma once

#include <span>

#include "core/ranks/collectives.h"

namespace quire {

// One operation. Each rank sums its part, in the order of ranks, and sends the result to the others.
struct CpuCollective {
  Tensor values;      // [N], f32 or f64
  PartBounds bounds;  // bounds of the parts
  bool reduces;       // parts are summed
  bool gathers;       // every rank gets all parts

  static CpuCollective all_reduce(const Tensor& values, size_t ranks);
  static CpuCollective reduce_scatter(const Tensor& values, const PartBounds& bounds, size_t ranks);
  static CpuCollective all_gather(const Tensor& values, const PartBounds& bounds, size_t ranks);
};

// Computes to[i] = 0 + parts[0][i] + parts[1][i] + ... for `count` elements; `to` may be one of the parts.
template <typename T>
void sum_in_rank_order(std::span<const T* const> parts, T* to, int64_t count);

}  // namespace quire
