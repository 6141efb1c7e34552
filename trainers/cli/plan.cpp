#include <CLI/CLI.hpp>
#include <memory>
#include <thread>

#include "core/check.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"
#include "trainers/plan/plan.h"

namespace quire {

namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  int64_t ranks = 1;
  bool json = false;
};

std::string size_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  constexpr double kMiB = 1 << 20;
  return value < 1024 * kMiB ? fmt::format("{:.1f} MiB", value / kMiB) : fmt::format("{:.2f} GiB", value / kMiB / 1024);
}

void line(const char* name, int64_t bytes, const char* what) {
  print(fmt::format("  {:<18}{:>12}  {}\n", name, size_text(bytes), what));
}

void run(const Arguments& arguments) {
  const RunConfig config = load_config<RunConfig>(arguments.config, arguments.overrides);
  const int threads = config.run.threads > 0 ? static_cast<int>(config.run.threads)
                                             : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const Plan plan = make_plan(config, arguments.ranks, threads);
  if (arguments.json) return print_json(to_json(plan, config));
  print(fmt::format("{}: {} parameters, {} token ids\n", arguments.config, plan.parameters, plan.vocabulary));
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
  if (plan.evaluation > 0) line("evaluation", plan.evaluation, "while it lasts, instead of activations");
  line("checkpoint", plan.checkpoint_work, "while one is written, instead of activations");
  line("a step", plan.step(), "at its most");
  line("in all", plan.total(), "with evaluation and checkpoints");
  print(fmt::format("disk: {} a checkpoint, {} for the {} that are kept and the one being written\n",
                    size_text(plan.checkpoint), size_text((config.checkpoint.keep + 1) * plan.checkpoint),
                    config.checkpoint.keep));
}

}  // namespace

void add_plan(CLI::App& program) {
  CLI::App& app = add_verb(program, "plan", "Parameters, memory and disk that a run will need; computes nothing",
                           "quire plan run.yaml data.rows=64 -n 8");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->config, "YAML file of a run")->required();
  app.add_option("OVERRIDES", arguments->overrides,
                 "key.path=value; data.vocabulary sets the number of token ids when the corpus is not there");
  app.add_option("-n,--ranks", arguments->ranks, "Processes the rows are dealt to")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { run(*arguments); });
}

}  // namespace quire
