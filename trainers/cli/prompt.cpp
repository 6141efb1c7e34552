#include "trainers/cli/prompt.h"

#include <array>
#include <cstdint>
#include <cstdio>

#include "core/check.h"
#include "core/files/file_io.h"

namespace quire {

namespace {

constexpr int64_t kLongestPrompt = int64_t{1} << 30;

std::string read_standard_input() {
  std::string text;
  std::array<char, 1 << 16> piece;
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), stdin)) {
    text.append(piece.data(), count);
    if (static_cast<int64_t>(text.size()) > kLongestPrompt) {
      fail(ErrorKind::data, "--prompt -: standard input holds more than {} bytes", kLongestPrompt);
    }
  }
  if (std::ferror(stdin) != 0) fail(ErrorKind::data, "--prompt -: standard input cannot be read");
  return text;
}

}  // namespace

std::string read_prompt(const std::string& prompt, const std::string& file) {
  if (prompt == "-") return read_standard_input();
  if (file.empty()) return prompt;
  return read_text_file(file, {.kind = ErrorKind::data, .max_bytes = kLongestPrompt});
}

PromptOptions add_prompt_options(Verb& app, PromptArguments& arguments, const std::string& purpose) {
  app.add_option("CHECKPOINT", arguments.checkpoint, "A checkpoint, or a run directory (its newest checkpoint)")
      ->required();
  app.add_option("OVERRIDES", arguments.overrides, "key.path=value: window, carry, data.subsequence, run.threads");
  Option* prompt = app.add_option("--prompt", arguments.prompt, "Text " + purpose + "; - reads it from standard input")
                       ->type_name("TEXT");
  Option* file = app.add_option("--prompt-file", arguments.prompt_file, "File with the text " + purpose)
                     ->type_name("FILE")
                     ->excludes(prompt);
  return {prompt, file};
}

}  // namespace quire
