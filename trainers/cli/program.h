// What all verbs of the program `quire` share: parsing, output, and the one place where exceptions become exit codes.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "trainers/cli/verb.h"

namespace quire {

// Each verb has a file with one such function, which calls add_verb() and sets a callback.
using AddVerb = void (*)(Verb& program);

Verb& add_verb(Verb& program, const std::string& name, const std::string& description, const std::string& example);

// Thrown by a verb that did its work and wants an exit code other than 0, such as kExitStopped.
struct Exit {
  int code = 0;
};

// Runs the verb named on the command line. Errors are one line on stderr, "quire: error: what, where, what to do";
// the result is the exit code (core/error.h).
int run_program(int argc, const char* const* argv, const std::function<std::string()>& version,
                std::span<const AddVerb> verbs);

// On stdout. Error(disk) when it cannot be written.
void print(std::string_view text);
void print_json(const nlohmann::ordered_json& object);  // one line; non-finite numbers become null

}  // namespace quire
