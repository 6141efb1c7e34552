#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"
#include "trainers/exchange/import.h"

namespace quire {

namespace {

struct Arguments {
  ImportOptions options;
  std::string folder;
  std::string output;
  bool json = false;
};

void run(Arguments& arguments) {
  ImportOptions& options = arguments.options;
  options.folder = arguments.folder;
  options.output = arguments.output;
  const auto started = std::chrono::steady_clock::now();
  const ImportReport report = import_model(options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (report.architecture == "quire") {
    if (arguments.json) {
      return print_json(nlohmann::ordered_json{{"output", arguments.output},
                                               {"architecture", report.architecture},
                                               {"tensors", report.tensors},
                                               {"bytes", report.bytes},
                                               {"seconds", seconds}});
    }
    return print(fmt::format("{}: a run that quire exported, {} tensors, {} bytes, {:.1f} s\n", arguments.output,
                             report.tensors, report.bytes, seconds));
  }
  if (arguments.json) {
    return print_json(nlohmann::ordered_json{{"output", arguments.output},
                                             {"architecture", report.architecture},
                                             {"parameters", report.parameters},
                                             {"tensors", report.tensors},
                                             {"left_out", report.left_out},
                                             {"bytes", report.bytes},
                                             {"tokenizer", report.tokenizer},
                                             {"tokenizer_ids", report.tokenizer_ids},
                                             {"vocabulary", report.vocabulary},
                                             {"positions", report.positions},
                                             {"subsequence", report.subsequence},
                                             {"seconds", seconds}});
  }
  print(fmt::format("{}: {}, {} parameters in {} tensors, {} bytes, {:.1f} s\n", arguments.output, report.architecture,
                    report.parameters, report.tensors, report.bytes, seconds));
  if (report.left_out > 0) print(fmt::format("  {} buffers are no weights and were left out\n", report.left_out));
  print(fmt::format("  tokenizer {} with {} of {} ids\n", report.tokenizer, report.tokenizer_ids, report.vocabulary));
  if (!report.tokenizer_was_found) {
    print(fmt::format("  {} has no tokenizer, so texts are token ids separated by spaces; --tokenizer gives another\n",
                      arguments.folder));
  }
  print(fmt::format("  made for texts of up to {} tokens; data.subsequence is {}\n", report.positions,
                    report.subsequence));
}

}  // namespace

void add_import(Verb& program) {
  Verb& app = add_verb(program, "import", "Make a run of a model in Hugging Face layout, or of one that export wrote",
                       "quire import SmolLM2-135M --output runs/smollm2\n"
                       "  quire import tiny-llama --output runs/tiny --tokenizer byte run.precision=f64");
  const auto arguments = std::make_shared<Arguments>();
  ImportOptions& options = arguments->options;
  app.add_option("DIR", arguments->folder, "Folder with config.json, safetensors files and, usually, a tokenizer")
      ->required();
  app.add_option("OVERRIDES", options.overrides,
                 "key.path=value of the run: run.precision, data.corpus, data.subsequence");
  app.add_option("--output", arguments->output, "The run directory, which must not exist")
      ->type_name("RUN")
      ->required();
  app.add_option(
         "--tokenizer", options.tokenizer,
         "As of quire prepare, or ids: texts are token ids separated by spaces (default: that of DIR, else ids)")
      ->type_name("KIND");
  app.add_option("--length", options.length,
                 "Length of text that dynamic and longrope scaling of rotary positions are meant for (default: "
                 "max_position_embeddings)")
      ->type_name("TOKENS")
      ->check(whole_number(1, 1 << 30));
  app.add_option("--ignore", options.ignored,
                 "A key of config.json that is unknown here and changes nothing; may be repeated")
      ->type_name("KEY");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
