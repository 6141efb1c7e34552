// The angles of rotary positions, scaled where model.position.rope.scaling says so.
#pragma once

#include <vector>

#include "layers/config/position_config.h"

namespace quire {

// Returns the angle per token of each of the dims / 2 pairs: base^(-2 i / dims), scaled as
//   linear    f / s (Chen et al. 2023)
//   dynamic   another base (dynamic NTK), for a stated length
//   llama3    f / s for slow pairs, f for fast ones (Llama 3.1)
//   yarn      the same, by the number of turns within the original length (Peng et al. 2023)
//   longrope  f / e_i (Ding et al. 2024)
std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t dims);

// Returns what products of rotated queries and keys are multiplied by beside the scale of attention: the square of the
// factor that yarn and longrope give to cosines and sines. A factor in the tables would count twice for keys that are
// rotated twice (stored blocks).
double rope_logit_factor(const RopeConfig& rope);
double rope_logit_factor(const PositionConfig& position);  // 1 without rotary positions

}  // namespace quire
