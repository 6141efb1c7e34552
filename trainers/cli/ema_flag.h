// --ema and --no-ema: which weights of a checkpoint a verb uses.
#pragma once

#include <optional>

#include "trainers/checkpoint/training_checkpoint.h"
#include "trainers/cli/verb.h"

namespace quire {

void add_ema_flag(Verb& verb, std::optional<bool>& ema);

// The weights that the flag names; without a flag those of optimizer.ema.evaluate.
Weights chosen_weights(const std::optional<bool>& ema, const RunConfig& config);

}  // namespace quire
