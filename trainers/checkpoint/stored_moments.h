// The moments of an optimizer in a checkpoint. Each rank saves its own as named slices (Moment), in a separate part,
// and loads the slices it needs from the parts of all ranks, however many there were.
#pragma once

#include "trainers/checkpoint/checkpoint.h"
#include "trainers/optimizer/optimizer.h"

namespace quire {

// Returns "optimizer" for rank 0, "optimizer-0003" for rank 3.
std::string moments_part_name(int rank);
bool is_moments_part(const std::string& part);

// Throws Error(checkpoint) that names the first moment, among the parts that this rank reads, that is missing, present
// twice, incomplete, or of another model or shape.
void load_moments(const CheckpointReader& reader, const ParameterStore& store, const Optimizer& optimizer,
                  const RankPlace& place);

}  // namespace quire
