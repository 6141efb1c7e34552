#include "trainers/cli/compare.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "trainers/cli/opened_evaluation.h"
#include "trainers/cli/program.h"
#include "trainers/cli/run_list.h"
#include "trainers/cli/verbs.h"
#include "trainers/compare/comparison.h"
#include "trainers/compare/report.h"

namespace quire {

namespace {

StoredEvaluation evaluate_now(const std::string& run, const std::string& split) {
  Ranks& ranks = Ranks::current();
  OpenedEvaluation opened = open_evaluation({.checkpoint = run, .splits = {split}}, ranks);
  log_info(fmt::format("{}: no evaluation of split {} is stored; evaluating {}", run, split,
                       opened.model->checkpoint().filename().string()));
  const EvaluationResult result = evaluate(opened, opened.planned.front(), 0, false, ranks);
  return to_stored(opened, opened.planned.front(), result);
}

ComparedRun compared_run(const CompareArguments& arguments, const std::string& path, const std::string& split) {
  ComparedRun run = open_compared_run(path, split);
  const WhichEvaluation which = arguments.best ? WhichEvaluation::best : WhichEvaluation::latest;
  if (std::optional<StoredEvaluation> stored = read_run_evaluation(path, split, which)) {
    run.evaluation = std::move(*stored);
    return run;
  }
  if (arguments.best) {
    fail(ErrorKind::config,
         "{}: no best evaluation of split {} is stored; leave out --best, or train with evaluate.every", path, split);
  }
  if (arguments.stored) {
    fail(ErrorKind::config,
         "{}: no evaluation of split {} is stored; leave out --stored, or store one with quire eval {}", path, split,
         path);
  }
  run.evaluation = evaluate_now(path, split);
  run.evaluated_now = true;
  return run;
}

}  // namespace

void require_comparison_page(const std::string& file) {
  if (!file.empty()) require_page(file, "--html", kReportMark, "a page of quire compare");
}

void print_comparison(const CompareArguments& arguments) {
  if (arguments.runs.size() < 2) {
    fail(ErrorKind::config, "compare: one run alone has nothing to be compared with; give more");
  }
  require_different_runs(arguments.runs);
  const size_t baseline = number_of_baseline(arguments.runs, arguments.baseline);
  require_comparison_page(arguments.html);
  const std::string split =
      arguments.split.empty() ? compared_config(arguments.runs[baseline]).evaluate.split.first() : arguments.split;
  std::vector<ComparedRun> runs;
  for (const std::string& path : arguments.runs) runs.push_back(compared_run(arguments, path, split));
  const Comparison comparison = compare_runs(std::move(runs), split, baseline);
  const Report report = report_of(comparison);
  arguments.json ? print_json(to_json(comparison)) : print(to_text(report));
  if (arguments.html.empty()) return;
  // The page is written last: when the disk is full, nothing but the page is lost.
  require_comparison_page(arguments.html);
  replace_file_atomically(arguments.html, to_html(report));
  if (!arguments.json) print(fmt::format("\n{}\n", arguments.html));
}

void add_compare(Verb& program) {
  Verb& app = add_verb(program, "compare", "Figures of several runs side by side, and their differences",
                       "quire compare runs/first runs/second\n"
                       "  quire compare runs/first runs/second --baseline runs/second --best --html compare.html");
  const auto arguments = std::make_shared<CompareArguments>();
  app.add_option("RUN", arguments->runs,
                 "Run directories. Runs whose configurations differ in the seed alone are a group; a run without a "
                 "stored evaluation is evaluated")
      ->required();
  app.add_option("--baseline", arguments->baseline,
                 "The run whose group the others are compared with (default: the first)")
      ->type_name("RUN");
  app.add_option("--split", arguments->split,
                 "Part of the corpus (default: the first one in evaluate.split of the baseline)")
      ->type_name("NAME");
  app.add_flag("--best", arguments->best, "Use each run's stored evaluation with the lowest loss, not the latest");
  app.add_flag("--stored", arguments->stored, "Refuse runs without a stored evaluation instead of evaluating them");
  app.add_option("--html", arguments->html, "Also a page with the same tables; replaces only such a page")
      ->type_name("FILE");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text (configs/COMPARE.md)");
  app.callback([arguments] { on_root_alone([&] { print_comparison(*arguments); }); });
}

}  // namespace quire
