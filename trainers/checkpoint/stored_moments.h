// The moments of an optimizer in a checkpoint. Each rank saves its own as named slices (Moment), in a part of its own,
// and takes what it needs from the parts of however many ranks there were.
#pragma once

#include "trainers/checkpoint/checkpoint.h"
#include "trainers/optimizer/optimizer.h"

namespace quire {

// "optimizer" of rank 0, "optimizer-0003" of rank 3.
std::string moments_part_name(int rank);
bool is_moments_part(const std::string& part);

// Error(checkpoint) names the first moment that is missing, twice there, of another model or another shape, or has a
// hole, in the parts that this rank has to read.
void load_moments(const CheckpointReader& reader, const ParameterStore& store, const Optimizer& optimizer,
                  const RankPlace& place);

}  // namespace quire
