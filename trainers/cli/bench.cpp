#include <memory>

#include "core/check.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/plan/benchmark.h"
#include "trainers/plan/random_batch.h"

namespace quire {

namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  BenchmarkOptions options;
  bool json = false;
};

constexpr double kMiB = 1 << 20;

void run(const Arguments& arguments) {
  const RunConfig config = configuration_of(arguments.config, arguments.overrides);
  tell_guessed_vocabulary(config);
  const Machine machine = Machine::choose(config.run);
  ThreadPool threads(threads_of(config.run, Ranks::current()));
  warn_of_threads(config.run);
  const ThreadPool::Use use(threads);
  const BenchmarkResult result = run_benchmark(config, machine, arguments.options);
  if (arguments.json) return print_json(to_json(result, arguments.config, machine, threads.threads()));
  print(fmt::format("{}: {} parameters, {} rows of {}, {}, {} threads\n", arguments.config, result.parameters,
                    config.data.rows, config.data.subsequence, machine.backend, threads.threads()));
  print(fmt::format("  step {:.1f} ms (min {:.1f}, max {:.1f}), {:.0f} tokens/s\n", result.step_ms_median,
                    result.step_ms_min, result.step_ms_max, result.tokens_per_second));
  print(fmt::format("  {:.1f} GFLOP a step, {:.0f} % of the {:.0f} GFLOP/s of a large product\n",
                    result.model_flops / 1e9, 100 * result.model_flops_share(), result.measured_peak_flops / 1e9));
  print(fmt::format("  peak memory {:.0f} MiB in tensors (state {:.1f} MiB), {:.0f} MiB resident\n",
                    static_cast<double>(result.peak_bytes) / kMiB, static_cast<double>(result.state_bytes) / kMiB,
                    static_cast<double>(result.resident_bytes) / kMiB));
  print(fmt::format("  during the timed steps: {} allocations from the system, heap grown by {} bytes\n",
                    result.system_allocations, result.heap_growth_bytes));
  if (result.operations.empty()) return;
  print(fmt::format(
      "  roofline: {:.0f} GFLOP/s, {:.1f} GB/s (a sum of large arrays); operands that lie in a cache move faster\n",
      result.measured_peak_flops / 1e9, result.measured_bandwidth / 1e9));
  print(fmt::format("  {:<26}{:>12}{:>12}{:>10}{:>8}{:>14}\n", "operation", "calls/step", "ms/step", "GFLOP/s", "GB/s",
                    "of roofline"));
  const auto steps = static_cast<double>(arguments.options.steps);
  for (const OpStats& op : result.operations) {
    print(fmt::format("  {:<26}{:>12.0f}{:>12.2f}{:>10}{:>8.1f}{:>12.0f} %\n", op.name,
                      static_cast<double>(op.calls) / steps, 1000 * op.seconds / steps,
                      op.flops > 0 ? fmt::format("{:.0f}", op.flops / op.seconds / 1e9) : "-",
                      op.bytes / op.seconds / 1e9, 100 * roofline_seconds(result, op) / op.seconds));
  }
}

}  // namespace

void add_bench(Verb& program) {
  Verb& app = add_verb(program, "bench", "Time and memory of a training step on random tokens; needs no corpus",
                       "quire bench run.yaml data.rows=4 --steps 20 --profile");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->config, "YAML file of a run")->required();
  app.add_option("OVERRIDES", arguments->overrides,
                 "key.path=value; data.vocabulary sets the number of token ids when the corpus is not there");
  app.add_option("--steps", arguments->options.steps, "Steps that are timed")
      ->type_name("N")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  app.add_option("--warmup", arguments->options.warmup, "Steps before the timed ones")
      ->type_name("N")
      ->check(whole_number(0, 1000000))
      ->capture_default_str();
  app.add_flag("--profile", arguments->options.profile, "Print the time of every operation, too");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
