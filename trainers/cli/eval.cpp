#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
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
  std::string split;
  std::vector<std::string> chosen;  // names of documents
  bool documents = false;
  bool by_position = false;
  std::string bins = "log2";
  std::string losses;
  std::optional<bool> ema;
  bool json = false;
  bool check = false;
};

double bits_per_byte(const EvaluationResult& result, const DocumentResult& document) {
  return result.has_text ? document.nll / (std::log(2.0) * static_cast<double>(document.bytes)) : std::nan("");
}

nlohmann::ordered_json document_json(const EvaluationResult& result, const DocumentResult& document, bool by_position) {
  nlohmann::ordered_json json{{"name", document.name},   {"tokens", document.tokens},
                              {"words", document.words}, {"bytes", document.bytes},
                              {"nll", document.nll},     {"bits_per_byte", bits_per_byte(result, document)}};
  if (result.recall) json["recall"] = recall_to_json(document.recall);
  if (by_position) json["by_position"] = positions_to_json(result, document.by_position);
  return json;
}

void print_recall(const RecallResult& recall) {
  const auto tokens = static_cast<double>(recall.tokens);
  print(fmt::format("  recall: {} tokens, perplexity {:.4f}, {:.1f} % most likely{}\n", recall.tokens,
                    std::exp(recall.nll / tokens), 100 * static_cast<double>(recall.correct) / tokens,
                    recall.chance ? fmt::format(" ({:.1f} % by chance)", 100 * *recall.chance / tokens) : ""));
}

// Prints losses by position. Bits per byte count the bytes of a bin; the end of a document has none.
void print_positions(const EvaluationResult& result) {
  print(fmt::format("  {:>22} {:>12} {:>14}{}\n", "position", "targets", "nats per token",
                    result.has_bytes_by_position ? "  bits per byte" : ""));
  for (const PositionBin& bin : result.by_position) {
    if (bin.tokens == 0) continue;
    std::string line = fmt::format("  {:>22} {:>12} {:>14.4f}", fmt::format("{}..{}", bin.begin, bin.end - 1),
                                   bin.tokens, bin.nll.value() / static_cast<double>(bin.tokens));
    if (result.has_bytes_by_position && bin.bytes > 0) {
      line += fmt::format(" {:>14.4f}", bin.nll.value() / (std::log(2.0) * static_cast<double>(bin.bytes)));
    }
    print(line + "\n");
  }
}

void print_result(const Arguments& arguments, const LoadedModel& model, const EvaluationResult& result) {
  const RunConfig& config = model.config();
  nlohmann::ordered_json json = to_json(result, config, config.evaluate.rows);
  json["step"] = model.step();
  json["weights"] = model.weights() == Weights::average ? "average" : "trained";
  if (arguments.documents) {
    for (const DocumentResult& document : result.documents)
      json["by_document"].push_back(document_json(result, document, arguments.by_position));
  }
  if (arguments.by_position) json["by_position"] = positions_to_json(result, result.by_position);
  if (arguments.json) return print_json(json);
  print(fmt::format("{}: split {} of {}{}\n", model.checkpoint().string(), result.split, config.data.corpus,
                    model.weights() == Weights::average ? ", average of the weights" : ""));
  print(fmt::format("  documents {}  tokens {}  words {}  bytes {}\n", result.documents.size(), result.tokens,
                    result.words, result.bytes));
  if (result.has_text) print(fmt::format("  bits per byte    {:.4f}\n", result.bits_per_byte()));
  print(fmt::format("  token perplexity {:.4f}\n", result.token_perplexity()));
  if (result.has_words) print(fmt::format("  word perplexity  {:.2f}\n", result.word_perplexity()));
  if (result.recall && result.recall->tokens > 0) print_recall(*result.recall);
  print(fmt::format("  mean context {:.0f} tokens  {:.1f} s, {:.0f} tokens/s\n", result.context_mean, result.seconds,
                    static_cast<double>(result.tokens) / result.seconds));
  if (arguments.by_position) print_positions(result);
  if (!arguments.documents) return;
  for (const DocumentResult& document : result.documents) {
    std::string line = fmt::format("  {:<32} {:>10} bytes", document.name, document.bytes);
    if (result.has_text) line += fmt::format("  {:.4f} bits per byte", bits_per_byte(result, document));
    if (document.recall.tokens > 0) {
      line += fmt::format("  {}/{} recalled", document.recall.correct, document.recall.tokens);
    }
    print(line + "\n");
  }
}

void run(const Arguments& arguments) {
  const int64_t bin_width = parse_bin_width(arguments.bins);
  Ranks& ranks = Ranks::current();
  if (!arguments.losses.empty()) ranks.on_root([&] { require_new_losses_file(arguments.losses); });
  OpenedEvaluation opened = open_evaluation({.checkpoint = arguments.checkpoint,
                                             .overrides = arguments.overrides,
                                             .corpus = arguments.corpus,
                                             .split = arguments.split,
                                             .documents = arguments.chosen,
                                             .ema = arguments.ema},
                                            ranks);
  if (arguments.check) return print(fmt::format("{}: valid\n", opened.model->checkpoint().string()));
  const EvaluationResult result = evaluate(opened, bin_width, !arguments.losses.empty(), ranks);
  print_result(arguments, *opened.model, result);
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
  app.add_option("--split", arguments->split, "Part of the corpus (default: evaluate.split)")->type_name("NAME");
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
                 "(configs/OUTPUT.md); takes some 60 bytes of memory for each")
      ->type_name("FILE");
  add_ema_flag(app, arguments->ema);
  app.add_flag("--check", arguments->check,
               "Check the arguments with this checkpoint and say whether they are valid; nothing is evaluated");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { run(*arguments); });
}

}  // namespace quire
