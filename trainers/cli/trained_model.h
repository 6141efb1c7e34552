// How verbs choose and load a trained model.
#pragma once

#include <memory>
#include <optional>

#include "trainers/checkpoint/loaded_model.h"
#include "trainers/cli/verb.h"

namespace quire {

// The configuration of a YAML file with overrides. Error(config) for the folder of a run, or of runs, which it names.
RunConfig configuration_of(const std::string& path, const std::vector<std::string>& overrides);

// --ema and --no-ema: which weights of a checkpoint are used.
void add_ema_flag(Verb& verb, std::optional<bool>& ema);

// The weights that the flag names; without a flag those of optimizer.ema.evaluate.
Weights chosen_weights(const std::optional<bool>& ema, const RunConfig& config);

// For verbs that take no corpus. given: a checkpoint or a run directory, of which the newest whole checkpoint is used;
// overrides: what the command line says about the configuration.
std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& given, const std::vector<std::string>& overrides,
                                        const std::optional<bool>& ema);

}  // namespace quire
