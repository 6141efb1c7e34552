#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/check.h"
#include "core/cores.h"
#include "core/log.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/plan_scaling.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/plan/benchmark.h"
#include "trainers/plan/idle_state.h"
#include "trainers/plan/plan.h"
#include "trainers/plan/random_batch.h"
#include "trainers/run/opened_run.h"
#include "trainers/run/schedule_share.h"

namespace quire {

namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  int64_t ranks = 1;
  bool probe = false;
  bool json = false;
  ScalingArguments scaling;
};

// An estimate of the time of all steps, from a few steps that are run on the device of the configuration.
struct Probe {
  BenchmarkResult measured;
  std::string backend;
  double seconds = 0;  // time of all steps
};

Probe run_probe(const RunConfig& config) {
  const Machine machine = Machine::choose(config.run);
  ThreadPool threads(threads_of(config.run, Ranks::current()));
  const ThreadPool::Use use(threads);
  Probe probe{run_benchmark(config, machine, {.steps = 5, .warmup = 2}), machine.backend};
  probe.seconds = probe.measured.step_ms_median / 1000 * static_cast<double>(config.schedule.steps);
  return probe;
}

// Measures a rank with so many rows. A second probe, with one row, gives the time that does not depend on rows.
MeasuredStep measure_step(RunConfig config, int64_t rows) {
  const auto step_ms = [&config](int64_t count) {
    config.data.rows = count;
    return run_probe(config).measured.step_ms_median;
  };
  MeasuredStep step{rows, step_ms(rows), 0};
  if (rows == 1) return step;
  const double of_one = step_ms(1);
  const double of_row = (step.step_ms - of_one) / static_cast<double>(rows - 1);
  if (of_row > 0) step.fixed_ms = std::max(0.0, of_one - of_row);
  return step;
}

std::string size_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  constexpr double kMiB = 1 << 20;
  return value < 1024 * kMiB ? fmt::format("{:.1f} MiB", value / kMiB) : fmt::format("{:.2f} GiB", value / kMiB / 1024);
}

void line(const char* name, int64_t bytes, const char* what) {
  print(fmt::format("  {:<18}{:>12}  {}\n", name, size_text(bytes), what));
}

void print_plan(const Plan& plan, const RunConfig& config, const std::string& name) {
  print(fmt::format("{}: {} parameters, {} token ids\n", name, plan.parameters, plan.vocabulary));
  for (const Plan::Part& part : plan.parts) print(fmt::format("  {:<18}{:>12}\n", part.name, part.parameters));
  print(fmt::format("memory of a rank with {} of {} rows\n", plan.rows, config.data.rows));
  line("weights", plan.weights, "");
  line("gradients", plan.gradients, "");
  line("moments", plan.moments, "of the optimizer");
  if (plan.average > 0) line("average", plan.average, "of the weights (optimizer.ema)");
  line("state", plan.state, "what rows carry along their documents");
  if (plan.host_state > 0) line("host state", plan.host_state, "memories in memory of the host");
  if (plan.file_state > 0)
    line("in files", plan.file_state, "memories in files of the run directory: disk, not memory");
  line("activations", plan.activations, "of a step; model.recompute and data.accumulate lower them");
  line("free blocks", plan.free_blocks, "kept for the tensors of another moment of the step");
  line("workspace", plan.workspace, "inside kernels");
  line("program", plan.program, "code and libraries");
  line("a step", plan.step(), "at its most");
  if (plan.evaluation > 0) line("evaluation", plan.evaluation_blocks, "what it takes beside the blocks of a step");
  line("checkpoint", plan.checkpoint_work, "in memory of the host while one is written; state needs none of its own");
  line("in all", plan.total(), "with evaluation and checkpoints");
  print(fmt::format("disk: {} a checkpoint, {} for the {} that are kept and the one being written\n",
                    size_text(plan.checkpoint), size_text((config.checkpoint.keep + 1) * plan.checkpoint),
                    config.checkpoint.keep));
}

std::vector<std::string> idle_state(const RunConfig& config, const RunLook& look) {
  if (!look.corpus || look.mixture) return {};
  ParameterStore store;
  const Network network(store, config.model, expected_vocabulary(config), DType::f32);
  return describe_idle_state(config, network.declared.state, *look.corpus);
}

void run(const Arguments& arguments) {
  const RunConfig config = configuration_of(arguments.config, arguments.overrides);
  const RunLook look = look_at_data(config, true);
  for (const std::string& what : look.not_looked_at) log_info(fmt::format("not looked at: {}", what));
  warn_of_threads(config.run);
  const int threads = config.run.threads > 0 ? static_cast<int>(config.run.threads) : allowed_cores();
  if (arguments.probe && arguments.ranks > 1 && !arguments.scaling.asked) {
    fail(ErrorKind::config, "plan: --probe measures one process; leave -n {} out, or add --scaling", arguments.ranks);
  }
  const Plan plan = make_plan(config, arguments.ranks, threads);
  const ScheduleShare share = look.corpus && !look.mixture
                                  ? schedule_share(config, look.corpus->split(config.data.split))
                                  : schedule_share(config);
  std::optional<Probe> probe;
  if (arguments.probe && arguments.ranks == 1) probe = run_probe(config);
  std::optional<ScalingTable> scaling;
  if (arguments.scaling.asked) {
    scaling =
        scaling_table(config, arguments.scaling, arguments.ranks,
                      arguments.probe ? measure_step(config, plan.rows)
                                      : MeasuredStep{plan.rows, arguments.scaling.step_ms, arguments.scaling.fixed_ms});
  }
  if (arguments.json) {
    nlohmann::ordered_json json = to_json(plan, config);
    json["reading"] = to_json(share);
    json["idle_state"] = idle_state(config, look);
    if (probe) {
      json["probe"] = {{"backend", probe->backend},
                       {"step_ms", probe->measured.step_ms_median},
                       {"tokens_per_second", probe->measured.tokens_per_second},
                       {"seconds", probe->seconds}};
    }
    if (scaling) json["scaling"] = to_json(*scaling);
    return print_json(json);
  }
  print_plan(plan, config, arguments.config);
  print(fmt::format("data: {}\n", describe(share, config)));
  for (const std::string& line : idle_state(config, look)) print(fmt::format("state: {}\n", line));
  if (probe) {
    print(fmt::format(
        "time on {}: {:.1f} ms a step, {:.0f} tokens/s; {} for {} steps, evaluations and checkpoints not counted\n",
        probe->backend, probe->measured.step_ms_median, probe->measured.tokens_per_second,
        write_value(Duration{std::max<int64_t>(1, std::llround(probe->seconds))}).text, config.schedule.steps));
  }
  if (scaling) print_scaling(*scaling);
}

}  // namespace

void add_plan(Verb& program) {
  Verb& app = add_verb(program, "plan", "Parameters, memory and disk that a run will need; with --probe its time",
                       "quire plan run.yaml data.rows=64 -n 8\n  quire plan run.yaml --probe\n"
                       "  quire plan run.yaml data.rows=64 -n 64 --scaling --step-ms 250");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->config, "YAML file of a run")->required();
  app.add_option("OVERRIDES", arguments->overrides,
                 "key.path=value; data.vocabulary sets the number of token ids when the corpus is not there");
  app.add_option("-n,--ranks", arguments->ranks, "Processes the rows are dealt to")
      ->type_name("N")
      ->check(whole_number(1, int64_t{1} << 20))
      ->capture_default_str();
  Option* const probe = app.add_flag(
      "--probe", arguments->probe,
      "Run a few steps on the device of the configuration, and say how long the whole run will take there");
  add_scaling_options(app, arguments->scaling, probe);
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([&app, arguments] {
    check_scaling(app, arguments->scaling, arguments->probe);
    on_root_alone([&] { run(*arguments); });
  });
}

}  // namespace quire
