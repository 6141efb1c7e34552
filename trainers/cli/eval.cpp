#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/spelling.h"
#include "data/corpus/corpus_on_ranks.h"
#include "trainers/checkpoint/loaded_model.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/evaluation/target_losses.h"
#include "trainers/run/progress.h"
#include "trainers/setup/evaluation_config.h"

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

nlohmann::ordered_json document_json(const EvaluationResult& result, const DocumentResult& document) {
  nlohmann::ordered_json json{{"name", document.name},   {"tokens", document.tokens},
                              {"words", document.words}, {"bytes", document.bytes},
                              {"nll", document.nll},     {"bits_per_byte", bits_per_byte(result, document)}};
  if (result.recall) json["recall"] = recall_to_json(document.recall);
  if (!document.by_position.empty()) json["by_position"] = positions_to_json(result, document.by_position);
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
      json["by_document"].push_back(document_json(result, document));
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

// Returns the numbers of the documents with these names, ascending; none means all. A name that several documents have
// selects all of them.
std::vector<int64_t> numbers_of(const std::vector<std::string>& requested, const Split& split,
                                const std::string& name) {
  if (requested.empty()) return {};
  std::vector<std::string> names;
  for (int64_t document = 0; document < split.documents(); ++document) names.push_back(split.name(document));
  for (const std::string& one : requested) {
    if (std::find(names.begin(), names.end(), one) != names.end()) continue;
    const std::string meant = did_you_mean(names, one);
    fail(ErrorKind::config, "--document: split {} has no document '{}'{}", name, one,
         meant.empty() ? "; quire eval --documents prints their names" : meant);
  }
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::find(requested.begin(), requested.end(), names[i]) != requested.end())
      numbers.push_back(static_cast<int64_t>(i));
  }
  return numbers;
}

void run(const Arguments& arguments) {
  const std::optional<int64_t> bin_width =
      arguments.by_position ? std::optional(parse_bin_width(arguments.bins)) : std::nullopt;
  Ranks& ranks = Ranks::current();
  if (!arguments.losses.empty()) ranks.on_root([&] { require_new_losses_file(arguments.losses); });
  std::unique_ptr<Corpus> corpus;
  std::unique_ptr<LoadedModel> model;
  std::string split;
  std::vector<int64_t> only;
  use_checkpoint(arguments.checkpoint, ranks, [&](const std::filesystem::path& path) {
    std::optional<CheckpointReader> reader;
    RunConfig chosen;
    ranks.on_all([&] {
      reader = open_checkpoint(path);
      chosen = evaluation_config(checkpoint_config(*reader), arguments.overrides,
                                 {"evaluate.rows", "evaluate.split", "run.threads", "data.corpus", "data.verify"});
    });
    if (!arguments.corpus.empty()) chosen.data.corpus = arguments.corpus;
    split = arguments.split.empty() ? chosen.evaluate.split : arguments.split;
    corpus = open_corpus_on_ranks(chosen.data.corpus, chosen.data.verify, {split}, ranks);
    ranks.on_all([&] {
      const std::unique_ptr<Tokenizer> tokenizer = checkpoint_tokenizer(*reader);
      if (corpus->tokenizer().serialise() != tokenizer->serialise()) {
        fail(ErrorKind::data,
             "{}: its tokenizer ({}) is not the one the model was trained with ({}); prepare it with that one",
             chosen.data.corpus, corpus->tokenizer().kind(), tokenizer->kind());
      }
      only = numbers_of(arguments.chosen, corpus->split(split), split);
      model.reset();
      model = std::make_unique<LoadedModel>(*reader, chosen, chosen_weights(arguments.ema, chosen));
    });
  });
  if (arguments.check) return print(fmt::format("{}: valid\n", model->checkpoint().string()));
  const RunConfig& config = model->config();
  const Machine& machine = model->machine();
  ParameterStore& store = model->store();
  std::unique_ptr<Progress> progress;
  const EvaluationResult result = evaluate(store, config, *corpus, machine,
                                           {.split = split,
                                            .rows = config.evaluate.rows,
                                            .documents = {},
                                            .only = only,
                                            .progress =
                                                [&](int64_t done, int64_t total) {
                                                  if (!progress) progress = std::make_unique<Progress>("eval", total);
                                                  progress->update(done);
                                                },
                                            .stop = {},
                                            .bin_width = bin_width,
                                            .each_target = !arguments.losses.empty(),
                                            .ranks = &ranks});
  if (progress) progress->finish();
  print_result(arguments, *model, result);
  if (!arguments.losses.empty()) {
    // The file is written last: when the disk is full, nothing but this file is lost.
    ranks.on_root([&] {
      require_new_losses_file(arguments.losses);  // hours may have passed
      write_target_losses(arguments.losses, result, corpus->tokenizer(), model->checkpoint().string());
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
