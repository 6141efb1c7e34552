// The text that a verb reads from the command line, a file or standard input, with the model that reads it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainers/cli/verb.h"

namespace quire {

struct PromptArguments {
  std::string checkpoint;
  std::vector<std::string> overrides;
  std::string prompt;
  std::string prompt_file;
  std::optional<bool> ema;
};
struct PromptOptions {
  Option* prompt;
  Option* file;
};
// Adds CHECKPOINT, OVERRIDES, --prompt and --prompt-file; `purpose` ends their descriptions ("to go on from").
PromptOptions add_prompt_options(Verb& app, PromptArguments& arguments, const std::string& purpose);

// Returns the text of --prompt, of standard input for "-", or of the file of --prompt-file unless its name is empty.
// Throws Error(data) for a file that cannot be read and for more than a gigabyte. (An argument of a command has at most
// 128 KiB under Linux, so a longer prompt comes from a file or standard input.)
std::string read_prompt(const std::string& prompt, const std::string& file);

}  // namespace quire
