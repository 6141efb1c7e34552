#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/prompt.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/evaluation/generator.h"

namespace quire {

namespace {

struct Arguments : PromptArguments {
  SamplingOptions sampling;
  int64_t samples = 1;
  bool echo = false;
  bool json = false;
};

void run(const Arguments& arguments) {
  const std::string prompt = read_prompt(arguments.prompt, arguments.prompt_file);
  const std::unique_ptr<LoadedModel> model = load_model(arguments.checkpoint, arguments.overrides, arguments.ema);
  const Tokenizer& tokenizer = model->tokenizer();

  const auto started = std::chrono::steady_clock::now();
  Generator generator(model->store(), model->config(), tokenizer, model->machine(), prompt);
  const int64_t read = generator.tokens();
  std::optional<Generator::Mark> behind_prompt;
  if (arguments.samples > 1) behind_prompt = generator.mark();
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (int64_t number = 0; number < arguments.samples; ++number) {
    if (number > 0) generator.go_back(*behind_prompt);
    SamplingOptions sampling = arguments.sampling;
    sampling.seed += static_cast<uint64_t>(number);
    if (!arguments.json && arguments.samples > 1)
      print(fmt::format("== sample {}, seed {}\n", number + 1, sampling.seed));
    if (!arguments.json && arguments.echo) print(prompt);
    const std::string text = generate(generator, tokenizer, sampling, [&](std::string_view piece) {
      if (arguments.json) return;
      print(piece);
      flush_output();
    });
    if (!arguments.json) print("\n");
    samples.push_back({{"text", arguments.echo ? prompt + text : text},
                       {"tokens", generator.tokens() - read},
                       {"seed", sampling.seed}});
  }
  if (!arguments.json) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const bool from_file = !arguments.prompt_file.empty();
  nlohmann::ordered_json json{{from_file ? "prompt_file" : "prompt", from_file ? arguments.prompt_file : prompt},
                              {"prompt_tokens", read}};
  json.update(samples[0]);
  if (arguments.samples > 1) json["samples"] = samples;
  json["seconds"] = seconds;
  print_json(json);
}

}  // namespace

void add_generate(Verb& program) {
  Verb& app = add_verb(program, "generate", "Continue a text, of any length",
                       "quire generate runs/first --prompt \"In the beginning\" --echo --length 500\n"
                       "  quire generate runs/first --prompt - --samples 3 --temperature 0.8 < book.txt");
  const auto arguments = std::make_shared<Arguments>();
  SamplingOptions& sampling = arguments->sampling;
  add_prompt_options(app, *arguments, "to go on from").prompt->allow_empty();
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
  app.add_option("--samples", arguments->samples, "Continuations of the prompt, with the seeds N, N + 1, ...")
      ->type_name("COUNT")
      ->check(whole_number(1, int64_t{1} << 20))
      ->capture_default_str();
  app.add_flag("--echo", arguments->echo, "Print the prompt before each continuation");
  add_ema_flag(app, arguments->ema);
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
