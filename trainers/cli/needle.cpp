#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "data/tasks/filler_source.h"
#include "data/tasks/needle_scene.h"
#include "layers/model/model_mechanisms.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/evaluation/generator.h"
#include "trainers/evaluation/heat_map.h"
#include "trainers/evaluation/needle.h"
#include "trainers/plan/benchmark.h"
#include "trainers/run/progress.h"

namespace quire {

namespace {

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> overrides;
  std::string lengths;
  std::string task = "single";
  std::optional<std::string> depths;
  std::optional<int64_t> align;
  std::vector<std::string> settings;
  NeedleOptions options;
  std::string filler;
  std::string svg;
  std::optional<bool> ema;
  bool json = false;
};

class ModelPredictor : public Predictor {
 public:
  ModelPredictor(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine)
      : generator_(store, config, tokenizer, machine) {}
  void begin_document() override { generator_.begin_document(); }
  void read(std::span<const int32_t> ids) override { generator_.read(ids); }
  int32_t most_likely() override { return generator_.most_likely(); }

 private:
  Generator generator_;
};

// Returns the chunk at a document's end, in tokens of the text: the smallest number of the model's chunks that contain
// the answer. 1 where the state of the model advances with every token.
int64_t chunk_for(const TaskConfig& task, const LanguageModel& model, const ModelConfig& config,
                  const Tokenizer& tokenizer) {
  const int64_t chunk = model.insertion().tokens_before(grain_of(config));
  if (chunk == 1) return 1;
  const int64_t needed = make_needle_kind(task, tokenizer, "needle")->answer_length() + 1;
  return (needed + chunk - 1) / chunk * chunk;
}

// Returns the options of the command line; the alignment depends on the model.
NeedleOptions needle_options(const Arguments& arguments) {
  NeedleOptions options = arguments.options;
  const std::string& given = arguments.task;
  const std::string name = given == "single" ? "passkey" : given == "multi" ? "multikey" : given;
  for (const std::string& setting : arguments.settings) {
    for (const char* key : {"task=", "length=", "shortest=", "depth=", "align=", "loss="}) {
      if (setting.starts_with(key)) {
        fail(ErrorKind::config,
             "needle: --set {} has no meaning here; there are options of the verb for tasks, lengths, "
             "depths and alignment",
             setting);
      }
    }
  }
  options.task = parse_config<TaskConfig>(fmt::format("task: \"{}\"", name), "--task", arguments.settings);
  const std::optional<TaskKind> kind = options.task.kind();
  if (kind == TaskKind::recall)
    fail(ErrorKind::config, "needle: --task recall has no needles; evaluate it with quire eval");
  options.lengths = parse_lengths(arguments.lengths, "--lengths");
  if (kind == TaskKind::hops) {
    if (arguments.depths)
      fail(ErrorKind::config, "needle: --depths has no meaning with hops, whose needles are everywhere");
  } else {
    options.depths = parse_depths(arguments.depths.value_or("0,0.25,0.5,0.75,1"), "--depths");
  }
  return options;
}

// Lengths are columns, depths are rows.
HeatMap heat_map(const NeedleOptions& options, const NeedleResult& result, const std::string& title) {
  HeatMap map{.title = title,
              .columns_title = "document length (tokens)",
              .rows_title = "depth of the needle",
              .columns = {},
              .rows = {},
              .values = {}};
  for (const int64_t length : options.lengths) map.columns.push_back(format_length(length));
  for (const double depth : options.depths) map.rows.push_back(fmt::format("{:.3g} %", 100 * depth));
  if (map.rows.empty()) map.rows.push_back("any");
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const NeedleCell& cell = result.cells[column * map.rows.size() + row];
      map.values.push_back(static_cast<double>(cell.exact) / static_cast<double>(cell.samples));
    }
  }
  return map;
}

void print_table(const NeedleOptions& options, const NeedleResult& result, const std::string& what,
                 int64_t NeedleCell::*count) {
  std::string line = fmt::format("  {:<16}", what);
  for (const int64_t length : options.lengths) line += fmt::format("{:>8}", format_length(length));
  print(line + "\n");
  const size_t rows = std::max<size_t>(options.depths.size(), 1);
  for (size_t row = 0; row < rows; ++row) {
    line = options.depths.empty() ? fmt::format("  {:<16}", "any depth")
                                  : fmt::format("  {:<16}", fmt::format("depth {:.3g} %", 100 * options.depths[row]));
    for (size_t column = 0; column < options.lengths.size(); ++column) {
      const NeedleCell& cell = result.cells[column * rows + row];
      line += fmt::format("{:>6.1f} %", 100 * static_cast<double>(cell.*count) / static_cast<double>(cell.samples));
    }
    print(line + "\n");
  }
}

// Checks the picture's path before documents are read, which may take hours. Only a picture of an earlier call may be
// replaced.
void require_picture(const std::string& file) {
  if (file.empty()) return;
  require_output_folder(file, "--svg");
  is_replaceable(file, "a picture of quire needle", [](const std::filesystem::path& path) {
    return first_bytes(path, kHeatMapMark.size()) == kHeatMapMark;
  });
}

// The picture is written last: when the disk is full, nothing but the picture is lost.
void draw(const Arguments& arguments, const NeedleOptions& options, const NeedleResult& result) {
  if (arguments.svg.empty()) return;
  Ranks::current().on_root([&] {
    require_picture(arguments.svg);  // checked again: hours may have passed
    const std::string title = fmt::format("{}: whole answer, {} samples a cell", arguments.task, options.samples);
    replace_file_atomically(arguments.svg, to_svg(heat_map(options, result, title)));
  });
}

void run(const Arguments& arguments) {
  NeedleOptions options = needle_options(arguments);
  Ranks& ranks = Ranks::current();
  ranks.on_root([&] { require_picture(arguments.svg); });
  FillerSource source(arguments.filler, ranks);
  const std::unique_ptr<LoadedModel> model = load_model(arguments.checkpoint, arguments.overrides, arguments.ema);
  const Tokenizer& tokenizer = model->tokenizer();
  const std::unique_ptr<Filler> filler = source.make(tokenizer);
  options.task.align =
      arguments.align.value_or(chunk_for(options.task, model->model(), model->config().model, tokenizer));
  if (!arguments.align) {
    for (int64_t& length : options.lengths) length -= length % options.task.align;
  }

  ModelPredictor predictor(model->store(), model->config(), tokenizer, model->machine());
  std::unique_ptr<Progress> progress;
  const auto show = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("needle: tokens", total);
    progress->update(done);
  };
  const NeedleResult result = find_needles(predictor, tokenizer, *filler, options, show, ranks);
  progress.reset();

  if (arguments.json) {
    nlohmann::ordered_json json{{"checkpoint", model->checkpoint().string()},
                                {"step", model->step()},
                                {"weights", model->weights() == Weights::average ? "average" : "trained"},
                                {"task", arguments.task},
                                {"key", options.task.key},
                                {"alphabet", name_in_config(options.task.alphabet)},
                                {"align", options.task.align},
                                {"filler", arguments.filler.empty() ? "built-in" : arguments.filler},
                                {"seed", options.seed},
                                {"samples", options.samples},
                                {"cells", cells_to_json(result)},
                                {"tokens", result.tokens},
                                {"resident_bytes", max_resident_bytes()},
                                {"seconds", result.seconds}};
    print_json(json);
    return draw(arguments, options, result);
  }
  print(fmt::format("{}: task {}, {} samples a cell, seed {}\n", model->checkpoint().string(), arguments.task,
                    options.samples, options.seed));
  print_table(options, result, "whole answer", &NeedleCell::exact);
  print_table(options, result, "one token", &NeedleCell::one_token);
  print(fmt::format("  {} tokens, {:.1f} s, {:.0f} tokens/s, {} MiB resident\n", result.tokens, result.seconds,
                    static_cast<double>(result.tokens) / result.seconds, max_resident_bytes() >> 20));
  draw(arguments, options, result);
  if (!arguments.svg.empty()) print(fmt::format("  {}\n", arguments.svg));
}

}  // namespace

void add_needle(Verb& program) {
  Verb& app = add_verb(program, "needle", "Retrieval of hidden keys at chosen lengths and depths",
                       "quire needle runs/first --lengths 1k,4k --samples 5 --svg needle.svg\n"
                       "  quire needle runs/first --lengths 16k --samples 5 --task hops:2 --filler books.h5");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CHECKPOINT", arguments->checkpoint, "A checkpoint, or a run directory (its newest checkpoint)")
      ->required();
  app.add_option("OVERRIDES", arguments->overrides, "key.path=value: window, carry, data.subsequence, run.threads");
  app.add_option("--lengths", arguments->lengths,
                 "Lengths of documents in tokens, as in 1k,4k,1M (k is 1024); memory does not grow with them")
      ->type_name("LIST")
      ->required();
  app.add_option("--task", arguments->task, "One passkey, one of several keys, or a chain of N definitions")
      ->type_name("single|multi|hops:N")
      ->capture_default_str();
  app.add_option("--depths", arguments->depths,
                 "Where the needle lies: 0 at the beginning, 1 before the question (default: 0,0.25,0.5,0.75,1)")
      ->type_name("LIST");
  app.add_option("--samples", arguments->options.samples, "Documents for every length and depth")
      ->type_name("N")
      ->check(whole_number(1, int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--seed", arguments->options.seed, "The same seed gives the same documents")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--filler", arguments->filler, "Text between the needles (default: built-in sentences; split train)")
      ->type_name("CORPUS[:SPLIT]");
  app.add_option(
         "--align", arguments->align,
         "The question ends with the first token of the last chunk of N tokens; 1: the answer ends the document "
         "(default: the model's chunks; lengths are then rounded down to whole ones)")
      ->type_name("N")
      ->check(whole_number(1, int64_t{1} << 20));
  app.add_option("--set", arguments->settings,
                 "An option of the task: key, alphabet or keys (quire config --list, data.mix); may be repeated")
      ->type_name("KEY=VALUE");
  app.add_option("--svg", arguments->svg, "Also a picture, length by depth; replaces only such a picture")
      ->type_name("FILE");
  add_ema_flag(app, arguments->ema);
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { run(*arguments); });
}

}  // namespace quire
