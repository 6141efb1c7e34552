// Chooses and loads a trained model for a verb.
#pragma once

#include <memory>
#include <optional>

#include "trainers/checkpoint/loaded_model.h"
#include "trainers/cli/verb.h"

namespace quire {

// Returns the configuration of a YAML file with overrides. Throws Error(config) for a run directory or a folder of
// runs, and names it.
RunConfig configuration_of(const std::string& path, const std::vector<std::string>& overrides);

// Adds --ema and --no-ema, which choose the weights of a checkpoint.
void add_ema_flag(Verb& verb, std::optional<bool>& ema);

// Returns the weights that the flag names; without a flag those of optimizer.ema.evaluate.
Weights chosen_weights(const std::optional<bool>& ema, const RunConfig& config);

// For verbs that take no corpus. given: a checkpoint, or a run directory, of which the newest whole checkpoint is used;
// overrides: changes of the configuration from the command line.
std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& given, const std::vector<std::string>& overrides,
                                        const std::optional<bool>& ema);

}  // namespace quire
