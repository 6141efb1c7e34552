#include "trainers/cli/compare.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "core/log.h"
#include "trainers/cli/opened_evaluation.h"
#include "trainers/cli/program.h"
#include "trainers/cli/run_list.h"
#include "trainers/cli/verbs.h"
#include "trainers/compare/kept_runs.h"
#include "trainers/compare/report.h"

namespace quire {

namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string baseline;  // one of the runs; empty: the first
  std::string split;     // empty: evaluate.split of the baseline
  std::vector<std::string> metrics;
  bool best = false;
  bool stored = false;
  CompareOutput output;
};

StoredEvaluation evaluation_of(OpenedEvaluation& opened) {
  Ranks& ranks = Ranks::current();
  const EvaluationResult result = evaluate(opened, opened.planned.front(), 0, false, ranks);
  return to_stored(opened, opened.planned.front(), result);
}

StoredEvaluation evaluate_now(const std::string& run, const std::string& split) {
  OpenedEvaluation opened = open_evaluation({.checkpoint = run, .splits = {split}}, Ranks::current());
  log_info(fmt::format("{}: no evaluation of split {} is stored; evaluating {}", run, split,
                       opened.model->checkpoint().filename().string()));
  return evaluation_of(opened);
}

ComparedRun compared_run(const Arguments& arguments, const std::string& path, const std::string& split) {
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

// Returns whether a run is read from a file of kept runs. Throws Error(data) for another file.
bool is_kept(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  if (is_kept_file(path)) return true;
  fail(ErrorKind::data, "{}: is neither the directory of a run nor a file of kept runs", path);
}

// Returns the runs of the arguments, a file of kept runs in its place.
std::vector<ComparedRun> runs_of(const Arguments& arguments, const std::string& split) {
  std::vector<ComparedRun> runs;
  for (const std::string& path : arguments.runs) {
    if (!is_kept(path)) {
      runs.push_back(compared_run(arguments, path, split));
      continue;
    }
    for (ComparedRun& run : read_kept_runs(path)) runs.push_back(std::move(run));
  }
  std::set<std::string> paths;
  for (const ComparedRun& run : runs) {
    if (!paths.insert(run.path).second) fail(ErrorKind::config, "{}: is given twice", run.path);
    if (run.evaluation.split == split) continue;
    fail(ErrorKind::config, "{}: was kept with its evaluation of split {}, not {}", run.path, run.evaluation.split,
         split);
  }
  if (runs.size() < 2) fail(ErrorKind::config, "compare: one run alone has nothing to be compared with; give more");
  return runs;
}

// Returns the split, where all arguments are files of kept runs that of their first evaluation.
std::string default_split(const Arguments& arguments, const std::vector<std::string>& folders) {
  if (!arguments.split.empty()) return arguments.split;
  if (folders.empty()) return read_kept_runs(arguments.runs.front()).front().evaluation.split;
  return compared_config(folders[number_of_baseline(folders, arguments.baseline)]).evaluate.split.first();
}

size_t number_of(const std::vector<ComparedRun>& runs, const std::string& baseline) {
  std::vector<std::string> paths;
  for (const ComparedRun& run : runs) {
    if (run.path == baseline) return paths.size();
    paths.push_back(run.path);
  }
  return number_of_baseline(paths, baseline);
}

void run(const Arguments& arguments) {
  std::vector<std::string> folders;
  for (const std::string& path : arguments.runs) {
    if (!is_kept(path)) folders.push_back(path);
  }
  if (arguments.runs.size() == 1 && folders.size() == 1) {
    fail(ErrorKind::config, "compare: one run alone has nothing to be compared with; give more");
  }
  if (arguments.best && folders.size() < arguments.runs.size()) {
    fail(ErrorKind::config, "--best: a file of kept runs has one evaluation of each; leave it out");
  }
  require_different_runs(folders);
  require_output(arguments.output);
  ComparePlan plan{default_split(arguments, folders)};
  for (const std::string& metric : arguments.metrics) {
    plan.choices.metrics.push_back(parse_metric(metric, "--metric"));
  }
  std::vector<ComparedRun> runs = runs_of(arguments, plan.split);
  plan.baseline = number_of(runs, arguments.baseline);
  print_comparison(std::move(runs), plan, arguments.output);
}

}  // namespace

ComparedRun wholly_evaluated_run(const std::string& path, const std::string& split) {
  ComparedRun run = open_compared_run(path, split);
  std::optional<StoredEvaluation> stored = read_run_evaluation(path, split, WhichEvaluation::latest);
  const bool is_newest = stored && stored->trained.step == run.newest_checkpoint;
  if (is_newest && !run.config.evaluate.documents && !run.config.evaluate.tokens) {
    run.evaluation = std::move(*stored);
    return run;
  }
  OpenedEvaluation opened = open_evaluation({.checkpoint = path, .splits = {split}}, Ranks::current());
  const int64_t documents = opened.corpus->split(split).documents();
  const bool is_whole = is_newest && static_cast<int64_t>(stored->documents.size()) == documents;
  if (is_whole && !run.config.evaluate.tokens) {
    run.evaluation = std::move(*stored);
    return run;
  }
  log_info(fmt::format("{}: evaluating all documents of split {}", path, split));
  run.evaluation = evaluation_of(opened);
  return run;
}

void require_output(const CompareOutput& output) {
  if (output.json && output.markdown) fail(ErrorKind::config, "--markdown: does not go with --json");
  if (!output.html.empty()) require_page(output.html, "--html", kReportMark, "a page of quire compare");
  if (output.keep.empty()) return;
  require_output_folder(output.keep, "--keep");
  is_replaceable(output.keep, "a file of kept runs", is_kept_file);
}

void print_comparison(std::vector<ComparedRun> runs, const ComparePlan& plan, const CompareOutput& output) {
  const Comparison comparison = compare_runs(std::move(runs), plan.split, plan.baseline, plan.choices);
  const Report report = report_of(comparison);
  if (output.json) {
    print_json(to_json(comparison));
  } else {
    print(output.markdown ? to_markdown(report_of(comparison, ReportNames::full)) : to_text(report));
  }
  // Files are written last: when the disk is full, nothing but these is lost.
  require_output(output);
  if (!output.keep.empty()) replace_file_atomically(output.keep, kept_text(comparison.runs));
  if (output.html.empty()) return;
  replace_file_atomically(output.html, to_html(report));
  if (!output.json && !output.markdown) print(fmt::format("\n{}\n", output.html));
}

void add_output_options(Verb& app, CompareOutput& output) {
  app.add_option("--html", output.html, "Also a page with the tables of quire compare; replaces only such a page")
      ->type_name("FILE");
  app.add_option("--keep", output.keep,
                 "Also a file with what a comparison needs of the runs, which compare reads in place of their folders")
      ->type_name("FILE");
  app.add_flag("--json", output.json, "Print one JSON object instead of text (configs/COMPARE.md)");
  app.add_flag("--markdown", output.markdown, "Print tables in Markdown");
}

void add_compare(Verb& program) {
  Verb& app = add_verb(program, "compare", "Figures of several runs side by side, and their differences",
                       "quire compare runs/first runs/second\n"
                       "  quire compare runs/first runs/second --baseline runs/second --best --html compare.html");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("RUN", arguments->runs,
                 "Run directories, and files of kept runs (--keep). Runs whose configurations differ in the seed alone "
                 "are a group; a run without a stored evaluation is evaluated")
      ->required();
  app.add_option("--baseline", arguments->baseline,
                 "The run whose group the others are compared with (default: the first)")
      ->type_name("RUN");
  app.add_option("--split", arguments->split,
                 "Part of the corpus (default: the first one in evaluate.split of the baseline)")
      ->type_name("NAME");
  app.add_flag("--best", arguments->best, "Use each run's stored evaluation with the lowest loss, not the latest");
  app.add_flag("--stored", arguments->stored, "Refuse runs without a stored evaluation instead of evaluating them");
  app.add_option(
         "--metric", arguments->metrics,
         "Figure of documents to compare by: bits_per_byte, nats_per_token, recall.accuracy, or bits_per_byte@N "
         "of the targets from position N on, a power of two; may be repeated (default: bits per byte, where "
         "every run has them)")
      ->type_name("NAME");
  add_output_options(app, arguments->output);
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
