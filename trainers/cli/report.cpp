#include <algorithm>
#include <memory>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "trainers/cli/program.h"
#include "trainers/cli/run_list.h"
#include "trainers/cli/verbs.h"
#include "trainers/report/page.h"

namespace quire {

namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string output = "report.html";
  std::string baseline;
  std::string split;
  bool best = false;
};

void require_output(const Arguments& arguments) {
  require_page(arguments.output, "--output", kRunsPageMark, "a page of quire report");
}

// Compares the runs that have stored an evaluation with the baseline or, without one, with the first of them.
std::optional<Comparison> comparison_of(const std::vector<ReportedRun>& runs, const Arguments& arguments,
                                        const std::string& baseline, const std::string& split) {
  std::vector<ComparedRun> compared;
  std::optional<size_t> place;
  for (const ReportedRun& run : runs) {
    if (!run.compared) continue;
    if (run.path == baseline) place = compared.size();
    compared.push_back(*run.compared);
  }
  if (!arguments.baseline.empty() && !place) {
    fail(ErrorKind::config, "--baseline {}: no evaluation of split {} is stored; store one with quire eval {}",
         arguments.baseline, split, arguments.baseline);
  }
  if (compared.empty()) return std::nullopt;
  return compare_runs(std::move(compared), split, place.value_or(0));
}

void run(const Arguments& arguments) {
  require_different_runs(arguments.runs);
  const size_t baseline = number_of_baseline(arguments.runs, arguments.baseline);
  require_output(arguments);
  const std::string split =
      arguments.split.empty() ? compared_config(arguments.runs[baseline]).evaluate.split.first() : arguments.split;
  RunsPage page;
  ReportedRuns read =
      read_runs({arguments.runs, split, arguments.best ? WhichEvaluation::best : WhichEvaluation::latest});
  if (read.runs.empty()) fail(ErrorKind::data, "{}", read.failures.front());
  const auto is_baseline = [&](const ReportedRun& run) { return run.path == arguments.runs[baseline]; };
  if (!arguments.baseline.empty() && std::none_of(read.runs.begin(), read.runs.end(), is_baseline)) {
    fail(ErrorKind::data, "--baseline {}: its files are damaged; choose another run", arguments.baseline);
  }
  for (const std::string& failure : read.failures) log_warn(failure + "; the page leaves this run out");
  page.runs = std::move(read.runs);
  page.comparison = comparison_of(page.runs, arguments, arguments.runs[baseline], split);
  const std::string html = to_html(page);
  require_output(arguments);
  replace_file_atomically(arguments.output, html);
  for (const ReportedRun& one : page.runs) {
    for (const std::string& note : one.notes) print(note + "\n");
  }
  print(fmt::format("{}: {} {}, {:.1f} MB\n", arguments.output, page.runs.size(),
                    page.runs.size() == 1 ? "run" : "runs", static_cast<double>(html.size()) / 1e6));
  if (!read.failures.empty()) throw Exit{static_cast<int>(ErrorKind::data)};
}

}  // namespace

void add_report(Verb& program) {
  Verb& app = add_verb(program, "report", "One page with the curves, figures and configurations of runs",
                       "quire report runs/first\n"
                       "  quire report runs/first runs/second --output two.html");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("RUN", arguments->runs,
                 "Run directories; they may be running. Nothing is evaluated: figures are those of stored evaluations")
      ->required();
  app.add_option("--output", arguments->output, "The page; replaces only such a page")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--baseline", arguments->baseline,
                 "The run whose group the others are compared with (default: the first with an evaluation)")
      ->type_name("RUN");
  app.add_option("--split", arguments->split, "Part of the corpus (default: evaluate.split of the baseline)")
      ->type_name("NAME");
  app.add_flag("--best", arguments->best, "Use each run's stored evaluation with the lowest loss, not the latest");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
