#include "trainers/cli/trained_model.h"

#include "core/check.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/setup/evaluation_config.h"

namespace quire {

RunConfig configuration_of(const std::string& path, const std::vector<std::string>& overrides) {
  std::error_code ignored;
  const std::filesystem::path file = std::filesystem::path(path) / "config.yaml";
  if (std::filesystem::is_directory(path, ignored)) {
    fail_for_runs_below(path);
    if (std::filesystem::exists(file, ignored)) {
      fail(ErrorKind::config, "{}: is a run; its configuration is {}, and quire train --resume {} goes on with it",
           path, file.string(), path);
    }
  }
  return load_config<RunConfig>(path, overrides);
}

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

std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& given, const std::vector<std::string>& overrides,
                                        const std::optional<bool>& ema) {
  Ranks& ranks = Ranks::current();
  std::unique_ptr<LoadedModel> model;
  use_checkpoint(given, ranks, [&](const std::filesystem::path& path) {
    ranks.on_all([&] {
      // With several ranks, the checkpoint has been verified already.
      const CheckpointReader reader = open_checkpoint(path, ranks.size() == 1);
      const RunConfig config = evaluation_config(checkpoint_config(reader), overrides, {"run.threads"});
      model.reset();
      model = std::make_unique<LoadedModel>(reader, config, chosen_weights(ema, config));
    });
  });
  return model;
}

}  // namespace quire
