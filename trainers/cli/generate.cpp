#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/files/file_io.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/evaluation/generator.h"

namespace quire {

namespace {

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> overrides;
  std::string prompt;
  std::string prompt_file;
  SamplingOptions sampling;
  std::optional<bool> ema;
  bool json = false;
};

// An argument of a command has at most 128 KiB under Linux, so a longer prompt comes from a file.
std::string prompt_of(const Arguments& arguments) {
  if (arguments.prompt_file.empty()) return arguments.prompt;
  return read_text_file(arguments.prompt_file, {.kind = ErrorKind::data, .most_bytes = int64_t{1} << 30});
}

void run(const Arguments& arguments) {
  const std::string prompt = prompt_of(arguments);
  const std::unique_ptr<LoadedModel> model = load_model(arguments.checkpoint, arguments.overrides, arguments.ema);
  const Tokenizer& tokenizer = model->tokenizer();

  const auto started = std::chrono::steady_clock::now();
  Generator generator(model->store(), model->config(), tokenizer, model->machine(), prompt);
  const int64_t read = generator.tokens();
  if (!arguments.json) print(arguments.prompt);  // that of a file may be a whole book
  const std::string text = generate(generator, tokenizer, arguments.sampling, [&](std::string_view piece) {
    if (arguments.json) return;
    print(piece);
    flush_output();
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (!arguments.json) return print("\n");
  const bool from_file = !arguments.prompt_file.empty();
  print_json({{from_file ? "prompt_file" : "prompt", from_file ? arguments.prompt_file : prompt},
              {"text", text},
              {"prompt_tokens", read},
              {"tokens", generator.tokens() - read},
              {"seed", arguments.sampling.seed},
              {"seconds", seconds}});
}

}  // namespace

void add_generate(Verb& program) {
  Verb& app = add_verb(program, "generate", "Continue a text, of any length",
                       "quire generate runs/first --prompt \"In the beginning\" --length 500 --temperature 0.8");
  const auto arguments = std::make_shared<Arguments>();
  SamplingOptions& sampling = arguments->sampling;
  app.add_option("CHECKPOINT", arguments->checkpoint, "A checkpoint, or a run directory (its newest checkpoint)")
      ->required();
  app.add_option("OVERRIDES", arguments->overrides, "key.path=value: window, cache, data.subsequence, run.threads");
  Option* prompt = app.add_option("--prompt", arguments->prompt, "Text to go on from")->type_name("TEXT");
  app.add_option("--prompt-file", arguments->prompt_file, "File with the text to go on from, which is not printed")
      ->type_name("FILE")
      ->excludes(prompt);
  app.add_option("--length", sampling.length, "Tokens to make at most; the end of the document ends it sooner")
      ->type_name("N")
      ->check(whole_number(0, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--temperature", sampling.temperature, "0 always takes the most likely token")
      ->type_name("X")
      ->range(0.0, 100.0)
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "Only the N most likely tokens; 0 is off")
      ->type_name("N")
      ->check(whole_number(0, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p,
                 "Only the most likely tokens that together reach this probability; 1 is off")
      ->type_name("X")
      ->range(0.000001, 1.0)
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "The same seed gives the same text")->type_name("N")->capture_default_str();
  add_ema_flag(app, arguments->ema);
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
