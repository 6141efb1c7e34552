// Sums gradients over ranks in a few large buckets, in a fixed order.
#pragma once

#include "core/communicator.h"
#include "core/tensor.h"

namespace quire {

// In place; gradients [N] on the CPU. Every rank ends with the same bits.
void reduce_gradients(const Tensor& gradients, Communicator& communicator);

}  // namespace quire
