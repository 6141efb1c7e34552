// The common part of all verbs of `quire`: parsing, output, and the one place where exceptions become exit codes.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/config/config.h"
#include "trainers/cli/verb.h"

namespace quire {

// Each verb has a file with one such function, which calls add_verb() and sets a callback.
using AddVerb = void (*)(Verb& program);

Verb& add_verb(Verb& program, const std::string& name, const std::string& description, const std::string& example);

// Thrown by a verb that did its work and needs an exit code other than 0, such as kExitStopped.
struct Exit {
  int code = 0;
};

struct ProgramTexts {
  std::function<std::string()> version;  // for --version
  std::function<std::vector<ConfigKey>()>
      keys;                 // keys of the configuration, for suggestions when an option is mistaken
  std::string number = "";  // of the version, as in 0.1.0
};

// Runs the verb named on the command line and returns the exit code (core/error.h). An error is one line on stderr,
// "quire: error: what, where, what to do". With several ranks (Ranks::current()) every rank makes the same call: an
// error is reported once, whichever rank had it, and all return its exit code.
int run_program(int argc, const char* const* argv, const ProgramTexts& texts, std::span<const AddVerb> verbs);

// For a verb whose work cannot be divided: rank 0 does it alone, however long it takes, while the others wait for its
// end.
void on_root_alone(const std::function<void()>& work);

// Prints on stdout, from rank 0 only. Throws Error(disk) when that fails.
void print(std::string_view text);
void print_json(const nlohmann::ordered_json& object);  // one line; non-finite numbers become null
// Flushes stdout for readers that watch it grow. Ends the program quietly when they have gone.
void flush_output();

}  // namespace quire
