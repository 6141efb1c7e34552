#include "trainers/cli/verbs.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "data/prepare.h"

namespace quire {

namespace {

// On a terminal one line that is written over; in a log a line every ten seconds.
class ProgressLine {
 public:
  void show(const PrepareProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10'000))) return;
    last_ = now;
    const double share = progress.total_bytes == 0
                             ? 1.0
                             : static_cast<double>(progress.bytes) / static_cast<double>(progress.total_bytes);
    const std::string text =
        fmt::format("prepare: {} of {} documents, {:.0f} %", progress.documents, progress.total_documents, 100 * share);
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r" : "", text, terminal_ ? "" : "\n");
    shown_ = true;
  }
  // Also on an error: its message begins on a line of its own.
  ~ProgressLine() {
    if (terminal_ && shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void print_json(const PrepareOptions& options, const PrepareReport& report) {
  nlohmann::ordered_json splits = nlohmann::ordered_json::object();
  for (const auto& [name, split] : report.splits) {
    splits[name] = {{"documents", split.totals.documents},
                    {"tokens", split.totals.tokens},
                    {"bytes", split.totals.bytes},
                    {"words", split.totals.words},
                    {"dropped", split.dropped}};
  }
  const nlohmann::ordered_json json = {{"output", options.output.string()}, {"tokenizer", report.tokenizer},
                                       {"vocabulary", report.vocabulary},   {"file_bytes", report.file_bytes},
                                       {"xxh3", report.checksum},           {"splits", splits},
                                       {"ignored_files", report.ignored},   {"seconds", report.seconds}};
  // A file name need not be UTF-8.
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_text(const PrepareOptions& options, const PrepareReport& report) {
  fmt::print("{}: {} bytes, tokenizer {} with {} ids, {:.1f} s\n", options.output.string(), report.file_bytes,
             report.tokenizer, report.vocabulary, report.seconds);
  for (const auto& [name, split] : report.splits) {
    fmt::print("  {:<10} {} documents, {} tokens, {} bytes, {} words", name, split.totals.documents,
               split.totals.tokens, split.totals.bytes, split.totals.words);
    if (split.dropped > 0) fmt::print("; {} empty documents dropped", split.dropped);
    fmt::print("\n");
  }
  if (report.ignored > 0) fmt::print("  {} files of other kinds were ignored\n", report.ignored);
}

}  // namespace

void add_prepare(CLI::App& app) {
  struct Arguments {
    PrepareOptions options;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  PrepareOptions& options = arguments->options;

  CLI::App* verb = app.add_subcommand("prepare", "Turn .txt files and folders into a corpus for training");
  verb->add_option("--input", options.inputs, "Files and folders; every .txt file is one document, for split train")
      ->type_name("PATH");
  verb->add_option("--tokenizer", options.tokenizer, "How text becomes tokens: byte")
      ->type_name("KIND")
      ->capture_default_str();
  verb->add_option("--output", options.output, "The corpus file; PATH.manifest is written beside it")
      ->type_name("PATH")
      ->required();
  verb->add_option("--split", options.splits,
                   "Documents of another split, or the share of the inputs that goes into it; may be repeated")
      ->type_name("NAME=PATH|NAME=FRACTION");
  verb->add_flag("--any-bytes", options.any_bytes, "Accept text that is not UTF-8");
  verb->add_flag("--force", options.force, "Replace an existing corpus");
  verb->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  verb->footer(
      "Examples:\n"
      "  quire prepare --input books/ --split valid=0.1 --output corpus.h5\n"
      "  quire prepare --split train=books/ --split valid=held_out/ --output corpus.h5");
  verb->callback([arguments] {
    PrepareReport report;
    {
      ProgressLine line;
      report = prepare_corpus(arguments->options, [&line](const PrepareProgress& progress) { line.show(progress); });
    }
    arguments->json ? print_json(arguments->options, report) : print_text(arguments->options, report);
  });
}

}  // namespace quire
