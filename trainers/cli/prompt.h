// The text that a verb reads from the command line, a file or standard input.
#pragma once

#include <string>

namespace quire {

// Returns the text of --prompt, of standard input for "-", or of the file of --prompt-file unless its name is empty.
// Throws Error(data) for a file that cannot be read and for more than a gigabyte. (An argument of a command has at most
// 128 KiB under Linux, so a longer prompt comes from a file or standard input.)
std::string read_prompt(const std::string& prompt, const std::string& file);

}  // namespace quire
