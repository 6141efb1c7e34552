#include "trainers/cli/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/spelling.h"

namespace quire {

namespace {

using Word = std::pair<std::string_view, std::string_view>;

// Verbs of other programs, with ours.
constexpr auto kOtherVerbs = std::to_array<Word>({
    {"evaluate", "eval"},
    {"evaluation", "eval"},
    {"test", "eval"},
    {"perplexity", "eval"},
    {"ppl", "eval"},
    {"resume", "train --resume RUN"},
    {"continue", "train --resume RUN"},
    {"fit", "train"},
    {"pretrain", "train"},
    {"finetune", "train FILE init.from=RUN"},
    {"fine-tune", "train FILE init.from=RUN"},
    {"sample", "generate"},
    {"complete", "generate"},
    {"infer", "generate"},
    {"inference", "generate"},
    {"predict", "generate"},
    {"chat", "generate"},
    {"tokenize", "prepare"},
    {"preprocess", "prepare"},
    {"dataset", "prepare"},
    {"check", "config FILE --check"},
    {"validate", "config FILE --check"},
    {"info", "inspect"},
    {"show", "inspect"},
    {"list", "inspect"},
    {"ls", "inspect"},
    {"benchmark", "bench"},
    {"profile", "bench FILE --profile"},
    {"estimate", "plan"},
    {"memory", "plan"},
    {"plot", "report"},
    {"curves", "report"},
    {"dashboard", "report"},
    {"tensorboard", "report"},
    {"passkey", "needle"},
    {"version", "--version"},
});

// Options of other programs, with ours. A word may mean different options of different verbs.
constexpr auto kOtherOptions = std::to_array<Word>({
    {"max-new-tokens", "length"},
    {"max-tokens", "length"},
    {"max-length", "length"},
    {"num-tokens", "length"},
    {"n-tokens", "length"},
    {"tokens", "length"},
    {"num-samples", "samples"},
    {"num-return-sequences", "samples"},
    {"n", "samples"},
    {"k", "top-k"},
    {"p", "top-p"},
    {"file", "prompt-file"},
    {"input", "prompt-file"},
    {"output-dir", "run-dir"},
    {"out-dir", "run-dir"},
    {"output", "run-dir"},
    {"out", "run-dir"},
    {"dir", "run-dir"},
    {"checkpoint", "resume"},
    {"from", "resume"},
    {"o", "output"},
    {"out", "output"},
    {"i", "input"},
    {"files", "input"},
    {"data", "input"},
    {"dataset", "input"},
    {"data", "corpus"},
    {"dataset", "corpus"},
    {"valid", "split"},
    {"validation", "split"},
    {"test", "split"},
    {"vocab", "vocab-size"},
    {"vocabulary", "vocab-size"},
    {"vocabulary-size", "vocab-size"},
    {"overwrite", "force"},
    {"f", "force"},
    {"nproc", "ranks"},
    {"gpus", "ranks"},
    {"world-size", "ranks"},
    {"context", "lengths"},
});

std::string other_verb(std::string_view word) {
  const auto found =
      std::find_if(kOtherVerbs.begin(), kOtherVerbs.end(), [&](const Word& w) { return w.first == word; });
  return found == kOtherVerbs.end() ? "" : fmt::format("; did you mean quire {}?", found->second);
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    verbs.push_back(verb->get_name());
  }
  return verbs;
}

[[noreturn]] void fail_for_word(const CLI::App& at, const std::string& command, const std::string& word) {
  std::string meant = at.get_parent() == nullptr ? other_verb(word) : "";
  const std::string extension = std::filesystem::path(word).extension().string();
  if (meant.empty() && (extension == ".yaml" || extension == ".yml")) {
    meant = fmt::format("; did you mean quire train {}?", word);
  }
  if (meant.empty()) meant = did_you_mean(verbs_of(at), word);
  fail(ErrorKind::config, "'{}' is no verb of {}{} see {} --help", word, command, meant.empty() ? ";" : meant, command);
}

// Returns the verb that was given; `command` receives it with its parents, as in "quire tokenizer train".
const CLI::App& given_verb(const CLI::App& program, std::string& command) {
  const CLI::App* at = &program;
  command = "quire";
  for (auto verbs = at->get_subcommands(); !verbs.empty(); verbs = at->get_subcommands()) {
    at = verbs.front();
    command += " " + at->get_name();
  }
  return *at;
}

std::vector<std::string> options_of(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* known : verb.get_options()) {
    for (const std::string& name : known->get_lnames()) names.push_back(name);
  }
  return names;
}

// Returns the argument for key.path=value; nullptr for a verb that takes none.
const CLI::Option* overrides_of(const CLI::App& verb) {
  for (const CLI::Option* known : verb.get_options()) {
    if (known->get_positional() && known->get_description().find("key.path=value") != std::string::npos) return known;
  }
  return nullptr;
}

bool has_word(std::string_view words, std::string_view word) {
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

// Returns "run.seed=3" for --seed 3 of a verb that takes keys of the configuration; empty when no key has the name.
std::string as_override(const CLI::App& verb, const std::string& name, const std::string& value, const ListKeys& keys) {
  const CLI::Option* overrides = overrides_of(verb);
  if (overrides == nullptr || !keys) return "";
  std::string requested = name;
  std::replace(requested.begin(), requested.end(), '-', '_');
  // Verbs that only read a model take few keys, and name them in their help.
  const bool any = verb.get_option_no_throw("CHECKPOINT") == nullptr;
  const auto is_taken = [&](const ConfigKey& key) {
    return any || key.at_evaluation || overrides->get_description().find(key.key) != std::string::npos;
  };
  for (const ConfigKey& key : keys()) {
    if (!is_taken(key) || key.key.find(".N.") != std::string::npos) continue;
    if (key.key == name || key.key.substr(key.key.rfind('.') + 1) == requested) {
      return value.empty() ? key.key + "=VALUE" : fmt::format("{}={}", key.key, value);
    }
    if (has_word(key.meant, requested)) return key.key + "=VALUE";
  }
  return "";
}

std::string describe_option(const CLI::App& verb, const std::string& given, const std::string& next,
                            const ListKeys& keys) {
  const size_t equals = given.find('=');
  const std::string option = given.substr(0, equals);
  const std::string value = equals == std::string::npos ? next : given.substr(equals + 1);
  std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  std::replace(name.begin(), name.end(), '_', '-');
  const std::vector<std::string> known = options_of(verb);
  const auto is_known = [&](std::string_view requested) {
    return std::find(known.begin(), known.end(), requested) != known.end();
  };
  std::string meant;
  if (is_known(name)) meant = "--" + name;
  for (const auto& [word, other] : kOtherOptions) {
    if (meant.empty() && word == name && is_known(other)) meant = fmt::format("--{}", other);
  }
  for (const CLI::Option* positional : verb.get_options()) {
    std::string lower = positional->get_name(true);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    const bool is_meant =
        lower == name || (lower == "checkpoint" && (name == "run" || name == "model" || name == "run-dir"));
    if (meant.empty() && positional->get_positional() && is_meant) {
      return fmt::format("there is no option {}; {} is given without it", option, positional->get_name(true));
    }
  }
  if (meant.empty()) meant = as_override(verb, name, value.starts_with("-") ? "" : value, keys);
  if (meant.empty()) {
    const std::string nearest = nearest_name(known, name);
    if (!nearest.empty()) meant = "--" + nearest;
  }
  return fmt::format("there is no option {}{}", option, meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

// Describes the arguments that a verb does not take, a misspelt option first; empty when there are none. CLI11 would
// list them all from the last to the first, or report a missing required option instead.
std::string describe_unexpected(const CLI::App& program, const CLI::App& verb, const std::vector<std::string>& words,
                                const ListKeys& keys) {
  const std::vector<std::string> unexpected = program.remaining(true);
  if (unexpected.empty()) return "";
  const auto option = std::find_if(unexpected.begin(), unexpected.end(),
                                   [](const std::string& text) { return text.size() > 1 && text.starts_with("-"); });
  if (option != unexpected.end()) {
    const auto at = std::find(words.begin(), words.end(), *option);
    const bool last = at == words.end() || at + 1 == words.end();
    return describe_option(verb, *option, last ? "" : *(at + 1), keys);
  }
  // A word where only options are allowed.
  const std::string& word = unexpected.front();
  const bool has_input = verb.get_option_no_throw("--input") != nullptr;
  return fmt::format("'{}' was not expected{}", word,
                     has_input ? fmt::format("; did you mean --input {}?", word) : std::string());
}

}  // namespace

std::vector<std::string> usual_arguments(const CLI::App& program, int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  const CLI::App* at = &program;
  std::string command = "quire";
  for (size_t i = 0; at->get_require_subcommand_min() > 0; ++i) {
    if (i == words.size()) {
      words.emplace_back("--help");
      break;
    }
    const std::string& word = words[i];
    if (word.starts_with("-")) break;
    const std::vector<std::string> verbs = verbs_of(*at);
    if (std::find(verbs.begin(), verbs.end(), word) == verbs.end()) fail_for_word(*at, command, word);
    at = at->get_subcommand(word);
    command += " " + word;
  }
  // -np is mpirun's spelling; CLI11 would read it as -n p.
  if (!words.empty() && words.front() == "plan")
    std::replace(words.begin(), words.end(), std::string("-np"), std::string("-n"));
  return words;
}

std::string describe_usage(const CLI::App& program, const std::vector<std::string>& words, const CLI::ParseError& error,
                           const ListKeys& keys) {
  std::string command;
  const CLI::App& verb = given_verb(program, command);
  const bool about_presence = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                              dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  std::string message = about_presence ? describe_unexpected(program, verb, words, keys) : "";
  if (message.empty()) message = error.what();
  while (!message.empty() && (message.back() == '.' || message.back() == '\n')) message.pop_back();
  return fmt::format("{}{} see {} --help", message, message.ends_with("?") ? "" : ";", command);
}

}  // namespace quire
