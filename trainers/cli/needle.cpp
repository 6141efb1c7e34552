#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "data/tasks/filler_source.h"
#include "data/tasks/make_task.h"
#include "data/tasks/needle_scene.h"
#include "layers/model/model_mechanisms.h"
#include "trainers/cli/needle_report.h"
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
  bool markdown = false;
};

class ModelPredictor : public Predictor {
 public:
  ModelPredictor(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine)
      : generator_(store, config, tokenizer, machine) {}
  void begin_document() override { generator_.begin_document(); }
  void read(std::span<const int32_t> ids) override { generator_.read(ids); }
  int32_t most_likely() override { return generator_.most_likely(); }
  void keep() override { kept_ = generator_.mark(); }
  void go_back() override { generator_.go_back(kept_); }

 private:
  Generator generator_;
  Generator::Mark kept_;
};

// Returns the chunk at a document's end, in tokens of the text: of needles the smallest number of the model's chunks
// that contain the answer, of questions one chunk. 1 where the state of the model advances with every token.
int64_t chunk_for(const TaskConfig& task, const LanguageModel& model, const ModelConfig& config,
                  const Tokenizer& tokenizer) {
  const int64_t chunk = model.insertion().tokens_before(grain_of(config));
  if (chunk == 1 || task.kind() == TaskKind::question) return chunk;
  const int64_t needed = make_needle_kind(task, tokenizer, "needle")->answer_length() + 1;
  return (needed + chunk - 1) / chunk * chunk;
}

TaskConfig task_of(const std::string& given, const std::vector<std::string>& settings) {
  const std::string name = given == "single" ? "passkey" : given == "multi" ? "multikey" : given;
  TaskConfig task = parse_config<TaskConfig>(fmt::format("task: \"{}\"", name), "--task", settings);
  if (task.kind() == TaskKind::recall) {
    fail(ErrorKind::config, "needle: --task recall has no needles; evaluate it with quire eval");
  }
  return task;
}

// Returns the options of each task on the command line; the alignment depends on the model.
std::vector<NeedleOptions> needle_options(const Arguments& arguments) {
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
  std::vector<NeedleOptions> all;
  const std::vector<std::string> names = split_at_commas(arguments.task);
  for (const std::string& name : names) {
    NeedleOptions options = arguments.options;
    options.task = task_of(name, arguments.settings);
    options.lengths = parse_lengths(arguments.lengths, "--lengths");
    const TaskKind kind = *options.task.kind();
    if (names.size() > 1 && kind != TaskKind::question) {
      fail(ErrorKind::config, "--task {}: only tasks of RULER and bAbI can be asked together; give {} alone",
           arguments.task, name);
    }
    if (std::count(names.begin(), names.end(), name) > 1) {
      fail(ErrorKind::config, "--task {}: {} is given twice", arguments.task, name);
    }
    if (kind == TaskKind::hops || kind == TaskKind::question) {
      if (arguments.depths)
        fail(ErrorKind::config, "needle: --depths has no meaning with {}, whose needles are everywhere",
             kind == TaskKind::hops ? "hops" : name);
    } else {
      options.depths = parse_depths(arguments.depths.value_or("0,0.25,0.5,0.75,1"), "--depths");
    }
    all.push_back(std::move(options));
  }
  return all;
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
void draw(const Arguments& arguments, const std::vector<NeedleAnswers>& answers) {
  if (arguments.svg.empty()) return;
  Ranks::current().on_root([&] {
    require_picture(arguments.svg);  // checked again: hours may have passed
    const std::string title =
        fmt::format("{}: {}, {} samples a cell", arguments.task, asks_questions(answers) ? "score" : "whole answer",
                    answers.front().options.samples);
    replace_file_atomically(arguments.svg, to_svg(heat_map(answers, title)));
  });
}

nlohmann::ordered_json to_json(const Arguments& arguments, const LoadedModel& model,
                               const std::vector<NeedleAnswers>& answers) {
  const NeedleOptions& options = answers.front().options;
  nlohmann::ordered_json json{{"checkpoint", model.checkpoint().string()},
                              {"step", model.step()},
                              {"weights", model.weights() == Weights::average ? "average" : "trained"},
                              {"task", arguments.task}};
  if (!asks_questions(answers)) {
    json["key"] = options.task.key;
    json["alphabet"] = name_in_config(options.task.alphabet);
  }
  json["align"] = options.task.align;
  json["filler"] = arguments.filler.empty() ? "built-in" : arguments.filler;
  json["seed"] = options.seed;
  json["samples"] = options.samples;
  json["cells"] = nlohmann::ordered_json::array();
  for (const NeedleAnswers& of : answers) {
    for (nlohmann::ordered_json& cell : cells_to_json(of.result, *of.options.task.task)) {
      json["cells"].push_back(std::move(cell));
    }
  }
  json["tokens"] = tokens_read(answers);
  json["resident_bytes"] = max_resident_bytes();
  json["seconds"] = seconds_spent(answers);
  return json;
}

void print_text(const Arguments& arguments, const LoadedModel& model, const std::vector<NeedleAnswers>& answers) {
  const NeedleOptions& options = answers.front().options;
  const std::string title = fmt::format("{}: task {}, {} samples a cell, seed {}", model.checkpoint().string(),
                                        arguments.task, options.samples, options.seed);
  if (arguments.markdown) return print(to_markdown(report_of(answers, title)));
  if (asks_questions(answers)) {
    print(to_text(report_of(answers, title)));
  } else {
    print(title + "\n" + tables_of(answers.front()));
  }
  const int64_t tokens = tokens_read(answers);
  const double seconds = seconds_spent(answers);
  print(fmt::format("  {} tokens, {:.1f} s, {:.0f} tokens/s, {} MiB resident\n", tokens, seconds,
                    static_cast<double>(tokens) / seconds, max_resident_bytes() >> 20));
  if (!arguments.svg.empty()) print(fmt::format("  {}\n", arguments.svg));
}

// Returns the answers to each task. All tasks are made before the first is read, so that a length that does not fit one
// of them is refused at once.
std::vector<NeedleAnswers> answers_of(const Arguments& arguments, std::vector<NeedleOptions> all, LoadedModel& model,
                                      const Filler& filler) {
  const Tokenizer& tokenizer = model.tokenizer();
  for (NeedleOptions& options : all) {
    options.task.align =
        arguments.align.value_or(chunk_for(options.task, model.model(), model.config().model, tokenizer));
    if (!arguments.align) {
      options.requested_lengths = options.lengths;
      for (int64_t& length : options.lengths) length -= length % options.task.align;
    }
    require_lengths(options, tokenizer, filler);
  }
  const bool reads_filler =
      std::any_of(all.begin(), all.end(), [](const NeedleOptions& options) { return asks_in_filler(options.task); });
  if (!arguments.filler.empty() && !reads_filler) {
    fail(ErrorKind::config, "needle: --filler has no meaning with {}, which has text of its own", arguments.task);
  }
  ModelPredictor predictor(model.store(), model.config(), tokenizer, model.machine());
  std::vector<NeedleAnswers> answers;
  for (NeedleOptions& options : all) {
    std::unique_ptr<Progress> progress;
    const auto show = [&](int64_t done, int64_t total) {
      const std::string label =
          all.size() > 1 ? fmt::format("needle: {}, tokens", *options.task.task) : "needle: tokens";
      if (!progress) progress = std::make_unique<Progress>(label, total);
      progress->update(done);
    };
    NeedleResult result = find_needles(predictor, tokenizer, filler, options, show, Ranks::current());
    answers.push_back({options, std::move(result)});
  }
  return answers;
}

void run(const Arguments& arguments) {
  if (arguments.json && arguments.markdown) fail(ErrorKind::config, "--markdown: does not go with --json");
  std::vector<NeedleOptions> all = needle_options(arguments);
  Ranks& ranks = Ranks::current();
  ranks.on_root([&] { require_picture(arguments.svg); });
  FillerSource source(arguments.filler, ranks);
  const std::unique_ptr<LoadedModel> model = load_model(arguments.checkpoint, arguments.overrides, arguments.ema);
  const std::unique_ptr<Filler> filler = source.make(model->tokenizer());
  const std::vector<NeedleAnswers> answers = answers_of(arguments, std::move(all), *model, *filler);
  if (arguments.json) {
    print_json(to_json(arguments, *model, answers));
  } else {
    print_text(arguments, *model, answers);
  }
  draw(arguments, answers);
}

}  // namespace

void add_needle(Verb& program) {
  Verb& app = add_verb(program, "needle", "Retrieval of hidden keys and facts at chosen lengths",
                       "quire needle runs/first --lengths 1k,4k --samples 5 --svg needle.svg\n"
                       "  quire needle runs/first --lengths 16k --samples 5 --task hops:2 --filler books.h5\n"
                       "  quire needle runs/first --lengths 1k,2k --samples 5 --task niah_single_2,babi_1 --markdown");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CHECKPOINT", arguments->checkpoint, "A checkpoint, or a run directory (its newest checkpoint)")
      ->required();
  app.add_option("OVERRIDES", arguments->overrides, "key.path=value: window, carry, data.subsequence, run.threads");
  app.add_option("--lengths", arguments->lengths,
                 "Lengths of documents in tokens, as in 1k,4k,1M (k is 1024); memory does not grow with them")
      ->type_name("LIST")
      ->required();
  app.add_option(
         "--task", arguments->task,
         "One passkey, one of several keys, a chain of N definitions, or tasks of RULER and bAbI with their published "
         "scores (data/TASKS.md), as in niah_single_2,vt,babi_1")
      ->type_name("single|multi|hops:N|LIST")
      ->capture_default_str();
  app.add_option(
         "--depths", arguments->depths,
         "Where the needle lies: 0 at the beginning, 1 before the question (default: 0,0.25,0.5,0.75,1); not of "
         "tasks whose facts lie everywhere")
      ->type_name("LIST");
  app.add_option("--samples", arguments->options.samples, "Documents for every length and depth")
      ->type_name("N")
      ->check(whole_number(1, int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--seed", arguments->options.seed, "The same seed gives the same documents")
      ->type_name("N")
      ->capture_default_str();
  app.add_option(
         "--filler", arguments->filler,
         "Text between the needles (default: built-in sentences; split train); not of tasks that have text of their "
         "own (data/TASKS.md)")
      ->type_name("CORPUS[:SPLIT]|FILE.txt");
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
  app.add_flag("--markdown", arguments->markdown, "Print a table in Markdown");
  app.callback([arguments] { run(*arguments); });
}

}  // namespace quire
