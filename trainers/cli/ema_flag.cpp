#include "trainers/cli/ema_flag.h"

#include <CLI/CLI.hpp>

namespace quire {

void add_ema_flag(CLI::App& verb, std::optional<bool>& ema) {
  verb.add_flag("--ema,!--no-ema", ema,
                "Use the average of the weights that optimizer.ema.decay keeps (default: optimizer.ema.evaluate)");
}

Weights chosen_weights(const std::optional<bool>& ema, const RunConfig& config) {
  return ema.value_or(config.optimizer.ema.evaluate) ? Weights::average : Weights::trained;
}

}  // namespace quire
