#include "trainers/cli/ema_flag.h"

namespace quire {

void add_ema_flag(Verb& verb, std::optional<bool>& ema) {
  Option* use = verb.add_flag_callback(
      "--ema", [&ema] { ema = true; },
      "Use the average of the weights that optimizer.ema.decay keeps (default: optimizer.ema.evaluate)");
  verb.add_flag_callback(
          "--no-ema", [&ema] { ema = false; }, "Use the trained weights")
      ->excludes(use);
}

Weights chosen_weights(const std::optional<bool>& ema, const RunConfig& config) {
  return ema.value_or(config.optimizer.ema.evaluate) ? Weights::average : Weights::trained;
}

}  // namespace quire
