#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "data/prepare.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"
#include "trainers/progress.h"

namespace quire {

namespace {

nlohmann::ordered_json to_json(const PrepareOptions& options, const PrepareReport& report) {
  nlohmann::ordered_json splits = nlohmann::ordered_json::object();
  for (const auto& [name, split] : report.splits) {
    splits[name] = {{"documents", split.totals.documents},
                    {"tokens", split.totals.tokens},
                    {"bytes", split.totals.bytes},
                    {"words", split.totals.words},
                    {"dropped", split.dropped}};
  }
  return {{"output", options.output.string()}, {"tokenizer", report.tokenizer},   {"vocabulary", report.vocabulary},
          {"file_bytes", report.file_bytes},   {"xxh3", report.checksum},         {"splits", splits},
          {"ignored_files", report.ignored},   {"lossy_tokenizer", report.lossy}, {"seconds", report.seconds}};
}

void print_text(const PrepareOptions& options, const PrepareReport& report) {
  print(fmt::format("{}: {} bytes, tokenizer {} with {} ids, {:.1f} s\n", options.output.string(), report.file_bytes,
                    report.tokenizer, report.vocabulary, report.seconds));
  for (const auto& [name, split] : report.splits) {
    const std::string dropped =
        split.dropped > 0 ? fmt::format("; {} empty documents dropped", split.dropped) : std::string();
    print(fmt::format("  {:<10} {} documents, {} tokens, {} bytes, {} words{}\n", name, split.totals.documents,
                      split.totals.tokens, split.totals.bytes, split.totals.words, dropped));
  }
  if (report.lossy) print("  the tokenizer alters text: bytes and words are those of the original\n");
  if (report.ignored > 0) print(fmt::format("  {} files of other kinds were ignored\n", report.ignored));
}

struct Arguments {
  PrepareOptions options;
  bool json = false;
};

void run(const Arguments& arguments) {
  std::unique_ptr<Progress> progress;
  const PrepareReport report = prepare_corpus(arguments.options, [&progress](const PrepareProgress& at) {
    if (!progress) progress = std::make_unique<Progress>("prepare: bytes", at.total_bytes);
    progress->update(at.bytes, fmt::format("{} documents", at.documents));
  });
  progress.reset();
  if (arguments.json) return print_json(to_json(arguments.options, report));
  print_text(arguments.options, report);
}

}  // namespace

void add_prepare(CLI::App& program) {
  CLI::App& app = add_verb(program, "prepare", "Turn documents into a corpus for training",
                           "quire prepare --input books/ --split valid=0.1 --output corpus.h5\n"
                           "  quire prepare --split train=books/ --split valid=held_out/ --output corpus.h5\n"
                           "  quire prepare --input web.jsonl.zst --name-key url --split valid=@urls.txt --tokenizer "
                           "spm:spm.model --output web.h5");
  const auto arguments = std::make_shared<Arguments>();
  PrepareOptions& options = arguments->options;
  app.add_option("--input", options.inputs,
                 "Files and folders, for split train: .txt is one document, .jsonl one a line; also .gz and .zst")
      ->type_name("PATH");
  app.add_option("--text-key", options.keys.text, "Key of the text in .jsonl records")
      ->type_name("KEY")
      ->capture_default_str();
  app.add_option("--name-key", options.keys.name, "Key of the name in .jsonl records (default: file and line)")
      ->type_name("KEY");
  app.add_option("--tokenizer", options.tokenizer, "How text becomes tokens: byte, or spm:FILE (a SentencePiece model)")
      ->type_name("KIND")
      ->capture_default_str();
  app.add_flag("--lossy-tokenizer", options.lossy_tokenizer, "Accept a tokenizer that alters text");
  app.add_option("--output", options.output, "The corpus file; PATH.manifest is written beside it")
      ->type_name("PATH")
      ->required();
  app.add_option(
         "--split", options.splits,
         "Documents of another split: more files, names from the inputs (one a line), or a share of the inputs, "
         "chosen by a hash of the text; may be repeated")
      ->type_name("NAME=PATH|NAME=@LIST|NAME=FRACTION");
  app.add_flag("--any-bytes", options.any_bytes, "Accept text that is not UTF-8");
  app.add_flag("--allow-duplicates", options.allow_duplicates, "Accept a text that is in two splits");
  app.add_flag("--force", options.force, "Replace an existing corpus");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { run(*arguments); });
}

}  // namespace quire
