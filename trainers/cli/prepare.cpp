#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/log.h"
#include "data/corpus/prepare.h"
#include "data/tasks/filler_source.h"
#include "data/tasks/task_corpus.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/progress.h"

namespace quire {

namespace {

nlohmann::ordered_json to_json(const std::filesystem::path& output, const PrepareReport& report) {
  nlohmann::ordered_json splits = nlohmann::ordered_json::object();
  for (const auto& [name, split] : report.splits) {
    splits[name] = {{"documents", split.totals.documents},
                    {"tokens", split.totals.tokens},
                    {"bytes", split.totals.bytes},
                    {"words", split.totals.words},
                    {"dropped", split.dropped}};
  }
  return {{"output", output.string()},       {"tokenizer", report.tokenizer}, {"vocabulary", report.vocabulary},
          {"file_bytes", report.file_bytes}, {"xxh3", report.checksum},       {"splits", splits},
          {"ignored_files", report.ignored}, {"hidden", report.hidden},       {"left_out", report.left_out},
          {"lossy_tokenizer", report.lossy}, {"seconds", report.seconds}};
}

// Warns when a share differs much from the one requested, and says how shares are chosen.
void warn_of_shares(const PrepareReport& report) {
  constexpr double kFar = 1.5;
  for (const auto& [name, split] : report.splits) {
    if (!split.asked || (split.share <= kFar * *split.asked && *split.asked <= kFar * split.share)) continue;
    log_warn(fmt::format(
        "split {} holds {:.3g} % of the text, and {:.3g} % was asked for: documents are not cut, and it has "
        "{} of {}; with more and shorter documents the share comes nearer",
        name, 100 * split.share, 100 * *split.asked, split.totals.documents, split.of_documents));
  }
}

void print_text(const std::filesystem::path& output, const PrepareReport& report) {
  print(fmt::format("{}: {} bytes, tokenizer {} with {} ids, {:.1f} s\n", output.string(), report.file_bytes,
                    report.tokenizer, report.vocabulary, report.seconds));
  for (const auto& [name, split] : report.splits) {
    const std::string dropped =
        split.dropped > 0 ? fmt::format("; {} empty documents dropped", split.dropped) : std::string();
    print(fmt::format("  {:<10} {} documents, {} tokens, {} bytes, {} words{}\n", name, split.totals.documents,
                      split.totals.tokens, split.totals.bytes, split.totals.words, dropped));
  }
  if (report.lossy) print("  the tokenizer alters text: bytes and words are those of the original\n");
  if (report.ignored > 0) print(fmt::format("  {} files of other kinds were ignored\n", report.ignored));
  if (report.hidden > 0) print(fmt::format("  {} hidden files and folders were left out\n", report.hidden));
  if (!report.left_out.empty()) print(fmt::format("  {}\n", describe_left_out(report.left_out)));
}

struct Arguments {
  PrepareOptions options;
  std::optional<std::string> task;
  std::vector<std::string> settings;
  std::optional<uint64_t> seed;
  std::string filler;
  bool json = false;
};

void print_report(const Arguments& arguments, const PrepareReport& report) {
  warn_of_shares(report);
  if (arguments.json) return print_json(to_json(arguments.options.output, report));
  print_text(arguments.options.output, report);
}

// Makes a corpus of generated documents.
void run_task(const Verb& app, const Arguments& arguments) {
  const PrepareOptions& given = arguments.options;
  for (const char* option :
       {"--input", "--text-key", "--name-key", "--any-bytes", "--skip-bad-records", "--allow-duplicates"}) {
    if (app.count(option) > 0) fail(ErrorKind::config, "prepare: {} has no meaning with --task", option);
  }
  const bool filler_has_tokenizer = !arguments.filler.empty() && !FillerSource::is_text(arguments.filler);
  if (filler_has_tokenizer && app.count("--tokenizer") > 0) {
    fail(ErrorKind::config, "prepare: --tokenizer has no meaning with --filler, whose tokenizer is used");
  }
  for (const std::string& setting : arguments.settings) {
    if (setting.starts_with("task=")) fail(ErrorKind::config, "prepare: --set {}: --task names the task", setting);
  }
  const auto config =
      parse_config<TaskConfig>(fmt::format("task: \"{}\"", *arguments.task), "--task", arguments.settings);
  std::unique_ptr<Progress> progress;
  const PrepareReport report = prepare_task_corpus({.task = config,
                                                    .splits = given.splits,
                                                    .seed = arguments.seed.value_or(1),
                                                    .filler = arguments.filler,
                                                    .tokenizer = given.tokenizer,
                                                    .output = given.output,
                                                    .lossy_tokenizer = given.lossy_tokenizer,
                                                    .force = given.force},
                                                   [&progress](int64_t done, int64_t total) {
                                                     if (!progress) {
                                                       progress =
                                                           std::make_unique<Progress>("prepare: documents", total);
                                                     }
                                                     progress->update(done);
                                                   });
  progress.reset();
  print_report(arguments, report);
}

void run(const Verb& app, const Arguments& arguments) {
  if (arguments.task) return run_task(app, arguments);
  for (const char* option : {"--set", "--seed", "--filler"}) {
    if (app.count(option) > 0) fail(ErrorKind::config, "prepare: {} has no meaning without --task", option);
  }
  std::unique_ptr<Progress> progress;
  const PrepareReport report = prepare_corpus(arguments.options, [&progress](const PrepareProgress& at) {
    if (!progress) progress = std::make_unique<Progress>("prepare: bytes", at.total_bytes);
    progress->update(at.bytes, fmt::format("{} documents", at.documents));
  });
  progress.reset();
  print_report(arguments, report);
}

}  // namespace

void add_prepare(Verb& program) {
  Verb& app = add_verb(program, "prepare", "Turn documents into a corpus for training",
                       "quire prepare --input books/ --split valid=0.1 --output corpus.h5\n"
                       "  quire prepare --split train=books/ --split valid=held_out/ --output corpus.h5\n"
                       "  quire prepare --input web.jsonl.zst --name-key url --split valid=@urls.txt \\\n"
                       "    --tokenizer spm:spm.model --output web.h5\n"
                       "  quire prepare --task recall --set length=8192 --split train=200 --split valid=20 \\\n"
                       "    --output recall.h5");
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
  app.add_option(
         "--tokenizer", options.tokenizer,
         "How text becomes tokens: byte, spm:FILE (a SentencePiece model), hf:PATH (a tokenizer.json or its folder), "
         "bpe:FOLDER (vocab.json and merges.txt) or tiktoken:FILE")
      ->type_name("KIND")
      ->capture_default_str();
  app.add_flag("--lossy-tokenizer", options.lossy_tokenizer, "Accept a tokenizer that alters text");
  app.add_option("--output", options.output, "The corpus file; PATH.manifest is written beside it")
      ->type_name("PATH")
      ->required();
  app.add_option(
         "--split", options.splits,
         "Documents of another split: more files (PATH), documents of the inputs by name (@LIST, one name a line), or "
         "a share of the inputs that a hash of their texts chooses (FRACTION); with --task the number of documents "
         "(COUNT). May be repeated")
      ->type_name("NAME=PATH|NAME=@LIST|NAME=FRACTION|NAME=COUNT");
  app.add_option("--task", arguments->task,
                 "Make documents instead of reading them: passkey, multikey, hops:N, recall, or a task of RULER or "
                 "bAbI (data/TASKS.md); tokens that repeat what was said before are marked, and quire eval reports "
                 "them apart")
      ->type_name("TASK");
  app.add_option("--set", arguments->settings,
                 "With --task: an option of it, as in length=8192 (quire config --list, data.mix); may be repeated")
      ->type_name("KEY=VALUE");
  app.add_option("--seed", arguments->seed, "With --task: the same seed gives the same documents (default: 1)")
      ->type_name("N");
  app.add_option("--filler", arguments->filler,
                 "With --task: text between the facts (default: built-in sentences; split train)")
      ->type_name("CORPUS[:SPLIT]|FILE.txt");
  app.add_flag("--any-bytes", options.any_bytes, "Accept text that is not UTF-8");
  app.add_flag("--skip-bad-records", options.skip_bad_records,
               "Leave out .jsonl records that cannot be read, and say how many there were of each kind");
  app.add_flag("--allow-duplicates", options.allow_duplicates, "Accept a text that is in two splits");
  app.add_flag("--force", options.force, "Replace an existing corpus");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([&app, arguments] { on_root_alone([&] { run(app, *arguments); }); });
}

}  // namespace quire
