// What all verbs of the program `quire` share: parsing, output, and the one place where exceptions become exit codes.
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

// Thrown by a verb that did its work and wants an exit code other than 0, such as kExitStopped.
struct Exit {
  int code = 0;
};

struct ProgramTexts {
  std::function<std::string()> version;          // for --version
  std::function<std::vector<ConfigKey>()> keys;  // of the configuration, which a mistaken option may mean
};

// Runs the verb named on the command line. Errors are one line on stderr, "quire: error: what, where, what to do";
// the result is the exit code (core/error.h). With several ranks (Ranks::current()) every rank makes the same call: an
// error is said once, whichever rank met it, and is the exit code of all.
int run_program(int argc, const char* const* argv, const ProgramTexts& texts, std::span<const AddVerb> verbs);

// For a verb whose work cannot be shared out: rank 0 does it as if it were the only one, however long it takes, while
// the others wait for its end.
void on_root_alone(const std::function<void()>& work);

// On stdout, from rank 0 only. Error(disk) when it cannot be written.
void print(std::string_view text);
void print_json(const nlohmann::ordered_json& object);  // one line; non-finite numbers become null
// For those who watch it grow. Ends the program quietly when they have gone.
void flush_output();

}  // namespace quire
