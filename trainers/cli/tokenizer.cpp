#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "data/corpus/tokenizer_training.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/progress.h"

namespace quire {

namespace {

struct Arguments {
  TokenizerTraining options;
  bool json = false;
  std::map<std::string, const Option*> sentencepiece_options;  // by name
};

void require_fitting_options(const Arguments& arguments) {
  if (arguments.options.kind != "bpe") {
    if (arguments.options.model.vocabulary >= 261) return;
    fail(ErrorKind::config, "--vocab-size {}: a SentencePiece model has at least 261 ids",
         arguments.options.model.vocabulary);
  }
  for (const auto& [name, option] : arguments.sentencepiece_options) {
    if (option->count() > 0) fail(ErrorKind::config, "{} is an option of --kind sentencepiece, not of bpe", name);
  }
}

void run(const Arguments& arguments) {
  require_fitting_options(arguments);
  std::unique_ptr<Progress> progress;
  const TokenizerTraining& options = arguments.options;
  const TokenizerTrainingReport report = train_tokenizer(options, [&progress](int64_t bytes, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("tokenizer: bytes", total);
    progress->update(bytes);
  });
  progress.reset();
  if (arguments.json) {
    return print_json({{"output", options.output.string()},
                       {"kind", options.kind},
                       {"model", options.kind == "bpe" ? "bpe" : options.model.model},
                       {"vocabulary", report.vocabulary},
                       {"sentences", report.sentences},
                       {"used_sentences", report.used_sentences},
                       {"bytes_per_token", report.bytes_per_token},
                       {"hidden", report.hidden},
                       {"left_out", report.left_out},
                       {"seconds", report.seconds}});
  }
  print(fmt::format("{}: {} with {} ids from {} of {} lines, {:.2f} bytes a token, {:.1f} s\n", options.output.string(),
                    options.kind == "bpe" ? "bpe" : options.model.model, report.vocabulary, report.used_sentences,
                    report.sentences, report.bytes_per_token, report.seconds));
  if (report.hidden > 0) print(fmt::format("  {} hidden files and folders were left out\n", report.hidden));
  if (!report.left_out.empty()) print(fmt::format("  {}\n", describe_left_out(report.left_out)));
}

}  // namespace

void add_tokenizer(Verb& program) {
  const char* example =
      "quire tokenizer train --input books/ --vocab-size 8000 --output spm.model\n"
      "  quire tokenizer train --kind bpe --input books/ --vocab-size 8000 --output tokenizer.json";
  Verb& verb = add_verb(program, "tokenizer", "Train a tokenizer", example);
  verb.require_verb();
  Verb& app = add_verb(verb, "train", "Train a tokenizer that gives back every byte of a text", example);
  const auto arguments = std::make_shared<Arguments>();
  TokenizerTraining& options = arguments->options;
  app.add_option("--input", options.inputs,
                 "Documents, as for quire prepare, or a corpus (.h5), of which the split `train` is read")
      ->type_name("PATH")
      ->required();
  app.add_option("--vocab-size", options.model.vocabulary,
                 "Token ids, of which 260 are BOS, EOS, unknown, newline and the bytes; of bpe 257, the bytes and "
                 "<|endoftext|>, which is BOS and EOS")
      ->type_name("N")
      ->check(whole_number(257, int64_t{1} << 22))
      ->required();
  app.add_option("--output", options.output,
                 "The model file, for quire prepare --tokenizer spm:FILE; of bpe a tokenizer.json, for hf:FILE")
      ->type_name("FILE")
      ->required();
  app.add_option("--kind", options.kind,
                 "sentencepiece, or bpe: byte-level BPE, which the package tokenizers (Hugging Face) reads as well")
      ->one_of({"sentencepiece", "bpe"})
      ->capture_default_str();
  auto& foreign = arguments->sentencepiece_options;
  foreign["--model"] = app.add_option("--model", options.model.model, "Kind of model")
                           ->one_of({"unigram", "bpe"})
                           ->capture_default_str();
  foreign["--character-coverage"] =
      app.add_option("--character-coverage", options.model.character_coverage,
                     "Share of the characters that get a piece of their own; the rest becomes bytes")
          ->type_name("X")
          ->range(0.98, 1.0)
          ->capture_default_str();
  foreign["--space-runs"] = app.add_flag(
      "--space-runs", options.model.space_runs,
      "Learn pieces for runs of spaces, and take 8 ids for runs of tabs, as code is indented with; without it "
      "each of their spaces and tabs is a token");
  foreign["--max-sentences"] =
      app.add_option("--max-sentences", options.max_sentences, "Lines that are used; of more, a random choice")
          ->type_name("N")
          ->check(whole_number(1, int64_t{1} << 32))
          ->capture_default_str();
  app.add_option("--text-key", options.keys.text, "Key of the text in .jsonl records")
      ->type_name("KEY")
      ->capture_default_str();
  app.add_flag("--skip-bad-records", options.skip_bad_records,
               "Leave out .jsonl records that cannot be read, and say how many there were of each kind");
  app.add_flag("--force", options.force, "Replace an existing file");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
