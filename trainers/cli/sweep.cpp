#include <malloc.h>

#include <memory>

#include "core/check.h"
#include "core/device.h"
#include "core/log.h"
#include "trainers/cli/program.h"
#include "trainers/cli/sweep_comparison.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/opened_run.h"
#include "trainers/run/resume_check.h"
#include "trainers/run/stop_conditions.h"
#include "trainers/run/trainer.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> positional;  // FILE key.path=value ...
  std::string folder;
  std::string sbatch;
  std::string kept;
  bool check = false;
  CompareOutput output;
};

// Errors begin with `where`.
template <typename Work>
void with_place(const std::string& where, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", where, error.what());
  }
}

std::string place_of(const std::string& file, const SweepRun& run) {
  return fmt::format("{}: variant {}", file, run.variant);
}

// Refuses variants that the comparison would take for one group.
void require_different_variants(const std::string& file, const Sweep& sweep) {
  for (size_t i = 0; i < sweep.config.variants.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (sweep.runs[i].origin != sweep.runs[j].origin || !are_one_group(sweep.configs[i], sweep.configs[j])) continue;
      fail(ErrorKind::config, "{}: variants {} and {} have the same settings, but for such as change no result", file,
           sweep.runs[j].variant, sweep.runs[i].variant);
    }
  }
}

// Reads the file and looks at the configuration of every run, so that a mistake in the last one shows before the first
// is trained.
Sweep open_sweep(const Arguments& arguments) {
  const std::string& file = arguments.positional.front();
  const std::vector<std::string> more(arguments.positional.begin() + 1, arguments.positional.end());
  Sweep sweep;
  sweep.config = load_config<SweepConfig>(file, {});
  const fs::path folder =
      arguments.folder.empty() ? default_run_directory(fs::path(file).stem().string()) : fs::path(arguments.folder);
  sweep.runs = runs_of(sweep.config, folder, more);
  for (const SweepRun& run : sweep.runs) {
    with_place(place_of(file, run), [&] { sweep.configs.push_back(configuration_of(run.config, run.own_overrides)); });
  }
  require_different_variants(file, sweep);
  return sweep;
}

// Refuses what train would refuse, for one run of every variant.
void look_at_variants(const std::string& file, const Sweep& sweep) {
  for (size_t i = 0; i < sweep.config.variants.size(); ++i) {
    with_place(place_of(file, sweep.runs[i]), [&] { look_at_run(sweep.configs[i]); });
  }
}

// Jobs are compared when they have ended, by the command without --sbatch.
void require_no_output(const CompareOutput& output) {
  const bool is_given = output.json || output.markdown || !output.html.empty() || !output.keep.empty();
  if (!is_given) return;
  fail(ErrorKind::config, "--sbatch: nothing is compared; leave out --html, --keep, --json and --markdown");
}

// Refuses a run that is there and was trained with settings that cannot change any more.
void require_same_settings(const SweepRun& run) {
  if (!fs::exists(run.folder)) return;
  with_place(run.folder.string(), [&] {
    const RunConfig before = read_run_file(run.folder / "config.yaml").config;
    require_resumable(diff_configs(before, configuration_of(run.config, run.overrides)));
  });
}

// Prints a job of SLURM for every run that is not trained, but not for one whose origin is not.
void print_jobs(const Sweep& sweep, const std::string& script) {
  size_t waiting = 0;
  std::vector<fs::path> trained;
  for (size_t i = 0; i < sweep.runs.size(); ++i) {
    const SweepRun& run = sweep.runs[i];
    if (is_trained(run, sweep.configs[i].schedule.steps)) {
      trained.push_back(run.folder);
      continue;
    }
    if (!run.origin.empty() && std::find(trained.begin(), trained.end(), run.origin) == trained.end()) {
      ++waiting;
      continue;
    }
    std::string line = "sbatch --job-name=" + run.folder.filename().string();
    for (const std::string& word : {script, run.config, run.folder.string()}) line += " " + shell_word(word);
    for (const std::string& setting : run.overrides) line += " " + shell_word(setting);
    print(line + "\n");
  }
  if (waiting > 0) {
    log_info(
        fmt::format("{} runs begin with the weights of runs that are not trained yet; give the command again when "
                    "those have ended",
                    waiting));
  }
}

// Returns false for a run that was stopped.
bool train(const SweepRun& run, StopConditions::Clock::time_point started) {
  Ranks& ranks = Ranks::current();
  const auto is_there = [&] { return fs::exists(run.folder) ? "yes" : ""; };
  std::unique_ptr<Trainer> trainer;
  if (ranks.found_by_root(is_there).empty()) {
    ranks.on_root([&] { fs::create_directories(run.folder.parent_path()); });
    trainer = Trainer::start(configuration_of(run.config, run.overrides), run.folder, ranks);
  } else {
    trainer = Trainer::resume(run.folder, {.file = run.config, .overrides = run.overrides}, ranks);
  }
  if (!trainer) return true;  // it has no step left
  StopConditions conditions(StopSignals::of_process(), started, trainer->directory(),
                            trainer->config().run.max_wall_time);
  const RunOutcome outcome = trainer->run([&] { return conditions.reason(); });
  ranks.on_root([&] {
    conditions.remove_file();
    require_log_written();
  });
  return outcome == RunOutcome::finished;
}

// Gives back what a run has freed: the next one asks for other sizes and would not use it.
void give_memory_back() {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    if (has_device_backend(kind)) device_backend(kind).allocator().trim();
  }
  ::malloc_trim(0);
}

// Trains what is not trained; returns the folders of runs that ended with values that are not finite.
std::vector<fs::path> train_all(const Sweep& sweep) {
  const auto started = StopConditions::Clock::now();
  std::vector<fs::path> failed;
  for (size_t i = 0; i < sweep.runs.size(); ++i) {
    const SweepRun& run = sweep.runs[i];
    const auto has_failed = [&](const fs::path& folder) {
      return std::find(failed.begin(), failed.end(), folder) != failed.end();
    };
    if (has_failed(run.origin)) {
      log_warn(fmt::format("{}: is left out, since {} failed", run.folder.string(), run.origin.string()));
      failed.push_back(run.folder);
      continue;
    }
    log_info(fmt::format("== {}, seed {} ({} of {})", run.variant, run.seed, i + 1, sweep.runs.size()));
    try {
      if (!train(run, started)) throw Exit{kExitStopped};
    } catch (const Error& error) {
      // A variant that diverges is a result; the others go on.
      if (error.kind() != ErrorKind::numerics) throw;
      log_warn(fmt::format("{}: {}", run.folder.string(), error.what()));
      failed.push_back(run.folder);
    }
    give_memory_back();
  }
  return failed;
}

void run(const Arguments& arguments) {
  Ranks& ranks = Ranks::current();
  Sweep sweep;
  ranks.on_all([&] {
    sweep = open_sweep(arguments);
    for (const std::string& metric : sweep.config.metrics) {
      parse_metric(metric, arguments.positional.front() + ": metrics");
    }
    require_output(arguments.output);
    if (!arguments.sbatch.empty()) require_no_output(arguments.output);
    if (!arguments.kept.empty()) return;
    for (size_t i = 0; i < sweep.runs.size(); ++i) {
      is_trained(sweep.runs[i], sweep.configs[i].schedule.steps);
      require_same_settings(sweep.runs[i]);
    }
  });
  if (!arguments.kept.empty())
    return on_root_alone([&] { compare_kept(sweep, arguments.kept, arguments.positional.front(), arguments.output); });
  if (!arguments.sbatch.empty()) return ranks.on_root([&] { print_jobs(sweep, arguments.sbatch); });
  ranks.on_root([&] { look_at_variants(arguments.positional.front(), sweep); });
  if (arguments.check) {
    return print(fmt::format("{}: valid; {} runs\n", arguments.positional.front(), sweep.runs.size()));
  }
  const std::vector<fs::path> failed = train_all(sweep);
  on_root_alone([&] { compare_trained(sweep, failed, arguments.output); });
  if (!failed.empty()) throw Exit{static_cast<int>(ErrorKind::numerics)};
}

}  // namespace

void add_sweep(Verb& program) {
  Verb& app = add_verb(program, "sweep", "Train variants of a configuration with several seeds, and compare them",
                       "quire sweep sweep.yaml --run-dir runs/caches --html runs/caches.html\n"
                       "  quire sweep sweep.yaml schedule.steps=100 --check");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("FILE", arguments->positional,
                 "YAML file with `config`, `variants` and `seeds` (trainers/RUNS.md), then any number of "
                 "key.path=value for all runs. The same command goes on where it was stopped")
      ->required()
      ->type_name("");
  Option* folder = app.add_option("--run-dir", arguments->folder,
                                  "Where the runs are kept: DIR/VARIANT-SEED (default: runs/FILE's name)")
                       ->type_name("DIR");
  Option* sbatch =
      app.add_option(
             "--sbatch", arguments->sbatch,
             "Train nothing; print a line for SLURM for every run that is not trained, as `sbatch SCRIPT CONFIG "
             "RUN_DIR key.path=value ...` (configs/launch/quire.sbatch)")
          ->type_name("SCRIPT");
  Option* check =
      app.add_flag("--check", arguments->check, "Train nothing; say what would be refused")->excludes(sbatch);
  app.add_option("--kept", arguments->kept,
                 "Train nothing; compare the runs in this file of an earlier --keep, which must have the settings that "
                 "the sweep gives them now")
      ->type_name("FILE")
      ->excludes(folder)
      ->excludes(sbatch)
      ->excludes(check);
  add_output_options(app, arguments->output);
  app.callback([arguments] { run(*arguments); });
}

}  // namespace quire
