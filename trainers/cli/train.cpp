#include <memory>

#include "core/check.h"
#include "core/log.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/stop_conditions.h"
#include "trainers/run/trainer.h"

namespace quire {

namespace {

struct Arguments {
  std::vector<std::string> positional;  // [CONFIG] key.path=value ...
  std::string run_directory;
  std::string resume;
  bool drop_state = false;
};

std::unique_ptr<Trainer> make_trainer(const Arguments& arguments, Ranks& ranks) {
  if (!arguments.resume.empty()) {
    if (!arguments.run_directory.empty()) {
      fail(ErrorKind::config,
           "train: --run-dir has no meaning with --resume, which goes on in the run's own directory");
    }
    ResumeRequest request{.overrides = arguments.positional, .drop_state = arguments.drop_state};
    if (!request.overrides.empty() && request.overrides.front().find('=') == std::string::npos) {
      request.file = request.overrides.front();
      request.overrides.erase(request.overrides.begin());
    }
    return Trainer::resume(arguments.resume, request, ranks);
  }
  if (arguments.positional.empty()) fail(ErrorKind::config, "train: give a YAML file, or --resume RUN_DIR");
  if (arguments.drop_state) fail(ErrorKind::config, "train: --drop-state needs --resume");
  const std::vector<std::string> overrides(arguments.positional.begin() + 1, arguments.positional.end());
  const RunConfig config = configuration_of(arguments.positional.front(), overrides);
  return Trainer::start(config,
                        arguments.run_directory.empty() ? default_run_directory(config.run.name)
                                                        : std::filesystem::path(arguments.run_directory),
                        ranks);
}

}  // namespace

void add_train(Verb& program) {
  Verb& app = add_verb(program, "train", "Train a model, or go on with a run",
                       "quire train run.yaml optimizer.lr=3e-4 --run-dir runs/first\n"
                       "  quire train --resume runs/first schedule.steps=1000");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->positional,
                 "YAML file of the run, then any number of key.path=value. With --resume the file may be left out; the "
                 "run then goes on with its own config.yaml")
      ->type_name("");
  app.add_option("--run-dir", arguments->run_directory, "Where the run is kept (default: runs/NAME)")->type_name("DIR");
  app.add_option(
         "--resume", arguments->resume,
         "Go on from a run directory or one of its checkpoints. Keys marked in configs/REFERENCE.md may change, "
         "by key.path=value, by an edit of the run's config.yaml or by another CONFIG; the log names each change")
      ->type_name("RUN_DIR|CHECKPOINT");
  app.add_flag("--drop-state", arguments->drop_state, "With --resume: begin with empty caches and memories");
  app.callback([arguments] {
    const StopSignals& signals = StopSignals::of_process();
    Ranks& ranks = Ranks::current();
    const auto started = StopConditions::Clock::now();
    const std::unique_ptr<Trainer> trainer = make_trainer(*arguments, ranks);
    if (!trainer) return;  // the run has no step left
    StopConditions conditions(signals, started, trainer->directory(), trainer->config().run.max_wall_time);
    const RunOutcome outcome = trainer->run([&] { return conditions.reason(); });
    ranks.on_root([&] {
      conditions.remove_file();
      require_log_written();
    });
    if (outcome == RunOutcome::stopped) throw Exit{kExitStopped};
  });
}

}  // namespace quire
