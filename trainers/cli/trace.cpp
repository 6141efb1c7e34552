#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/opened_evaluation.h"
#include "trainers/cli/program.h"
#include "trainers/cli/prompt.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/progress.h"
#include "trainers/trace/trace_output.h"
#include "trainers/trace/trace_reader.h"

namespace quire {

namespace {

struct Arguments : PromptArguments {
  std::string document;
  std::string corpus;
  std::string split;
  TraceOptions options;
  std::string html;
  bool json = false;
};

// The text with the model that reads it, and fields that say where both come from.
struct Opened {
  std::unique_ptr<LoadedModel> model;
  TraceText text;
  nlohmann::ordered_json about;
};

// Checks the page's path before anything is read. Only a page of an earlier call may be replaced.
void require_page(const std::string& file) {
  if (file.empty()) return;
  require_output_folder(file, "--html");
  is_replaceable(file, "a page of quire trace", [](const std::filesystem::path& path) {
    return first_bytes(path, kTracePageMark.size()) == kTracePageMark;
  });
}

Opened open_document(const Arguments& arguments) {
  const std::vector<std::string> splits =
      arguments.split.empty() ? std::vector<std::string>() : std::vector{arguments.split};
  OpenedEvaluation evaluation = open_evaluation({.checkpoint = arguments.checkpoint,
                                                 .overrides = arguments.overrides,
                                                 .corpus = arguments.corpus,
                                                 .splits = splits,
                                                 .documents = {arguments.document},
                                                 .ema = arguments.ema},
                                                Ranks::current());
  const PlannedEvaluation& planned = evaluation.planned.front();
  const std::vector<int64_t>& only = planned.only;
  if (only.size() != 1) {
    fail(ErrorKind::config, "--document {}: {} documents of split {} have this name", arguments.document, only.size(),
         planned.split);
  }
  const Split& split = evaluation.corpus->split(planned.split);
  Opened opened{std::move(evaluation.model), {.name = "document " + arguments.document, .ids = {}, .ends = true}, {}};
  opened.text.ids.resize(static_cast<size_t>(split.length(only[0])));
  split.tokens(only[0], 0, split.length(only[0]), opened.text.ids.data());
  opened.about = {{"document", arguments.document}, {"split", planned.split}};
  return opened;
}

Opened open_prompt(const Arguments& arguments) {
  const std::string prompt = read_prompt(arguments.prompt, arguments.prompt_file);
  const bool from_file = !arguments.prompt_file.empty();
  Opened opened{load_model(arguments.checkpoint, arguments.overrides, arguments.ema),
                {.name = from_file ? arguments.prompt_file : "the prompt", .ids = {}},
                {}};
  opened.model->tokenizer().encode(prompt, opened.text.ids);
  opened.about = from_file ? nlohmann::ordered_json{{"prompt_file", arguments.prompt_file}}
                           : nlohmann::ordered_json{{"prompt", prompt}};
  return opened;
}

void run(const Arguments& arguments) {
  if (arguments.prompt.empty() && arguments.prompt_file.empty() && arguments.document.empty()) {
    fail(ErrorKind::config, "trace: needs a text; give --prompt, --prompt-file or --document");
  }
  require_page(arguments.html);
  const Opened opened = arguments.document.empty() ? open_prompt(arguments) : open_document(arguments);
  LoadedModel& model = *opened.model;
  std::unique_ptr<Progress> progress;
  TraceOptions options = arguments.options;
  options.progress = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("trace: tokens", total);
    progress->update(done);
  };
  const Trace trace =
      trace_text(model.store(), model.config(), model.tokenizer(), model.machine(), opened.text, options);
  progress.reset();

  const std::string title =
      fmt::format("{}: {}, tokens {} to {} of {}", model.checkpoint().string(), opened.text.name, trace.from,
                  trace.from + static_cast<int64_t>(trace.tokens.size()) - 1, trace.length);
  const std::string page = arguments.html.empty() ? "" : to_html(trace, title);
  if (arguments.json) {
    nlohmann::ordered_json about{{"checkpoint", model.checkpoint().string()},
                                 {"step", model.step()},
                                 {"weights", model.weights() == Weights::average ? "average" : "trained"}};
    about.update(opened.about);
    about["top"] = options.top_k;
    write_json(trace, about, print);
  } else {
    print(title + "\n" + to_text(trace));
  }
  if (arguments.html.empty()) return;
  // The page is written last: when the disk is full, nothing but the page is lost.
  require_page(arguments.html);
  replace_file_atomically(arguments.html, page);
  if (!arguments.json) print(fmt::format("  {}\n", arguments.html));
}

}  // namespace

void add_trace(Verb& program) {
  Verb& app = add_verb(program, "trace", "Which earlier tokens each layer and head retrieves, and with which weight",
                       "quire trace runs/first --prompt-file book.txt --html trace.html\n"
                       "  quire trace runs/first --prompt-file book.txt --from 64 --count 100 --json");
  const auto arguments = std::make_shared<Arguments>();
  const auto [prompt, file] = add_prompt_options(app, *arguments, "to read");
  Option* document = app.add_option("--document", arguments->document, "Name of a document of the corpus to read")
                         ->type_name("NAME")
                         ->excludes(prompt)
                         ->excludes(file);
  app.add_option("--split", arguments->split, "Part of the corpus that has the document (default: evaluate.split)")
      ->type_name("NAME")
      ->needs(document);
  app.add_option("--corpus", arguments->corpus, "The corpus (default: data.corpus)")
      ->type_name("FILE")
      ->needs(document);
  app.add_option("--from", arguments->options.from, "The first token to trace; the beginning of the document is 0")
      ->type_name("N")
      ->check(whole_number(0, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--count", arguments->options.count, "Tokens to trace, at most 100000 (default: all from N on)")
      ->type_name("N")
      ->check(whole_number(1, kMaxTracedTokens));
  app.add_option("--top", arguments->options.top_k, "Spans to list for each token and head, strongest first")
      ->type_name("K")
      ->check(whole_number(1, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--html", arguments->html, "Also a page to look at; replaces only such a page")->type_name("FILE");
  add_ema_flag(app, arguments->ema);
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text (configs/TRACE.md)");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
