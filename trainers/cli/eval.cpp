#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "trainers/cli/evaluation_report.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/opened_evaluation.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/evaluation/target_losses.h"

namespace quire {

namespace {

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> overrides;
  std::string corpus;
  std::vector<std::string> splits;
  std::vector<std::string> sweep;
  std::optional<int64_t> stride;
  std::optional<int64_t> last;
  std::vector<std::string> chosen;  // names of documents
  bool documents = false;
  bool by_position = false;
  std::string bins = "log2";
  std::string losses;
  std::optional<bool> ema;
  bool json = false;
  bool check = false;
};

// The file has the targets of one evaluation.
void require_losses_of_one(const Arguments& arguments, const OpenedEvaluation& opened) {
  if (arguments.losses.empty() || opened.planned.size() == 1) return;
  fail(ErrorKind::config,
       "--losses: holds the losses of one evaluation, and these are {}; name one split, and no values to sweep",
       opened.planned.size());
}

void report(const Arguments& arguments, OpenedEvaluation& opened, const ReportDetails& details, int64_t bin_width,
            Ranks& ranks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::optional<EvaluationTable> table;
  if (!arguments.json) table.emplace(opened);
  for (const PlannedEvaluation& planned : opened.planned) {
    const EvaluationResult result = evaluate(opened, planned, bin_width, false, ranks);
    if (table) {
      table->print_line(planned, result, details);
    } else {
      list.push_back(evaluation_json(opened, planned, result, details));
    }
  }
  if (arguments.json) print_json({{"evaluations", list}});
}

void run(const Arguments& arguments) {
  const int64_t bin_width = parse_bin_width(arguments.bins);
  Ranks& ranks = Ranks::current();
  if (!arguments.losses.empty()) ranks.on_root([&] { require_new_losses_file(arguments.losses); });
  OpenedEvaluation opened = open_evaluation({.checkpoint = arguments.checkpoint,
                                             .overrides = arguments.overrides,
                                             .corpus = arguments.corpus,
                                             .splits = arguments.splits,
                                             .documents = arguments.chosen,
                                             .ema = arguments.ema,
                                             .stride = arguments.stride,
                                             .last = arguments.last,
                                             .sweep = arguments.sweep},
                                            ranks);
  require_losses_of_one(arguments, opened);
  if (arguments.check) return print(fmt::format("{}: valid\n", opened.model->checkpoint().string()));
  const ReportDetails details{.documents = arguments.documents, .by_position = arguments.by_position};
  if (opened.planned.size() > 1 || !arguments.sweep.empty())
    return report(arguments, opened, details, bin_width, ranks);
  const PlannedEvaluation& planned = opened.planned.front();
  const EvaluationResult result = evaluate(opened, planned, bin_width, !arguments.losses.empty(), ranks);
  if (arguments.json) {
    print_json(evaluation_json(opened, planned, result, details));
  } else {
    print_evaluation(opened, planned, result, details);
  }
  if (!arguments.losses.empty()) {
    // The file is written last: when the disk is full, nothing but this file is lost.
    ranks.on_root([&] {
      require_new_losses_file(arguments.losses);  // hours may have passed
      write_target_losses(arguments.losses, result, opened.corpus->tokenizer(), opened.model->checkpoint().string());
    });
  }
}

}  // namespace

void add_eval(Verb& program) {
  Verb& app = add_verb(program, "eval", "Perplexity and bits per byte of a checkpoint",
                       "quire eval runs/first --split valid data.subsequence=1024 --json");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CHECKPOINT", arguments->checkpoint, "A checkpoint, or a run directory (its newest checkpoint)")
      ->required();
  app.add_option("OVERRIDES", arguments->overrides,
                 "key.path=value: what configs/REFERENCE.md marks so, as window, carry and data.subsequence; also "
                 "evaluate.rows, evaluate.split, run.threads, data.corpus and data.verify");
  app.add_option("--corpus", arguments->corpus, "Another corpus with the same tokenizer")->type_name("FILE");
  app.add_option("--split", arguments->splits,
                 "Part of the corpus (default: evaluate.split); given several times, each is evaluated by itself, and "
                 "--json has a list")
      ->type_name("NAME");
  app.add_option("--sweep", arguments->sweep,
                 "Evaluate once for each of these values of a key that may differ at evaluation, such as "
                 "data.subsequence=256,1024; given several times, once for each combination. The model is loaded once, "
                 "and --json has a list")
      ->type_name("KEY=V1,V2");
  app.add_option(
         "--stride", arguments->stride,
         "Read each document in windows of data.subsequence tokens that begin every N tokens and carry no "
         "state, as published perplexities are computed; each token counts once, in the first window that has it")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24));
  app.add_option("--last", arguments->last,
                 "Only the last N tokens of each document count, its end included; those before are read as context")
      ->type_name("N")
      ->check(whole_number(1, int64_t{1} << 40));
  app.add_option("--document", arguments->chosen, "Read this document of the split alone; may be given several times")
      ->type_name("NAME");
  app.add_flag("--documents", arguments->documents, "Print a line for every document, too");
  Option* by_position =
      app.add_flag("--by-position", arguments->by_position, "Print the loss by position in the document, too");
  app.add_option("--bins", arguments->bins,
                 "Bins of --by-position: their bounds are powers of two (log2), or multiples of N tokens")
      ->type_name("log2|N")
      ->needs(by_position)
      ->capture_default_str();
  app.add_option("--losses", arguments->losses,
                 "Also write an HDF5 file with the loss and the most likely token at every target "
                 "(configs/EVALUATION.md); takes some 60 bytes of memory for each")
      ->type_name("FILE");
  add_ema_flag(app, arguments->ema);
  app.add_flag("--check", arguments->check,
               "Check the arguments with this checkpoint and say whether they are valid; nothing is evaluated");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { run(*arguments); });
}

}  // namespace quire
