#include "trainers/cli/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "core/check.h"
#include "core/files/write_signals.h"
#include "core/log.h"
#include "core/ranks/ranks.h"
#include "trainers/cli/help.h"
#include "trainers/cli/manual.h"
#include "trainers/cli/usage.h"

namespace quire {

namespace {

// Thrown when nobody reads standard output any more, which is no error.
struct ClosedOutput {};
constexpr int kClosedOutput = 128 + SIGPIPE;  // the exit code that a shell gives a process ended by the signal

// Set when a write has failed. The verb still runs to its end, so that its output files are complete.
std::atomic<bool> output_is_closed{false};

void note_failed_output() {
  if (errno == EPIPE) {
    output_is_closed = true;
    return;
  }
  fail(ErrorKind::disk, "standard output cannot be written: {}", std::strerror(errno));
}

void report(std::string message) {
  // Control characters become spaces, so that the message is one line.
  std::replace_if(
      message.begin(), message.end(), [](unsigned char c) { return c < 0x20U || c == 0x7FU; }, ' ');
  const LogVoice voice(0);  // the message names the rank where it matters
  log_error(message);
}

// Ends all ranks because of an error of this rank; exactly one rank reports it. Returns the exit code of the first
// error.
int end_with(ErrorKind kind, const std::string& message, bool shared = false) {
  Ranks& ranks = Ranks::current();
  try {
    if (const std::optional<std::string> text = ranks.fail(kind, message, shared)) {
      report(*text);
    } else {
      ranks.barrier();
    }
  } catch (const SharedError& first) {
    return first.exit_code();
  }
  return static_cast<int>(kind);
}

// Ends all ranks without a message. A single process ends by the signal itself.
int end_without_reader() {
  Ranks& ranks = Ranks::current();
  if (ranks.size() == 1) end_by_broken_pipe();
  ranks.fail(ErrorKind::disk, "nobody reads standard output any more", true);
  return kClosedOutput;
}

// Opens descriptors that are closed: otherwise the next file would get the number of a closed stdout, and printed text
// would end up in that file. They are opened for reading, so that a write is still an error.
void hold_closed_descriptors() {
  static std::once_flag once;  // ranks may be threads of one process
  std::call_once(once, [] {
    for (int descriptor = 0; descriptor <= STDERR_FILENO; ++descriptor) {
      if (::fcntl(descriptor, F_GETFD) == -1) {
        [[maybe_unused]] const int opened = ::open("/dev/null", O_RDONLY);
      }
    }
  });
}

int parse_and_run(CLI::App& program, int argc, const char* const* argv, const ListKeys& keys) {
  const std::vector<std::string> words = usual_arguments(program, argc, argv);
  try {
    program.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes the last one first
  } catch (const Exit& exit) {
    flush_output();
    return exit.code;
  } catch (const CLI::Success& help_or_version) {
    std::ostringstream text;
    program.exit(help_or_version, text, text);
    print(text.str());
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::config, "{}", describe_usage(program, words, error, keys));
  }
  // Text that stays in the buffer until exit could be lost unnoticed.
  flush_output();
  return 0;
}

}  // namespace

Verb& add_verb(Verb& program, const std::string& name, const std::string& description, const std::string& example) {
  return program.add_verb(name, description, verb_footer(example));
}

int run_program(int argc, const char* const* argv, const ProgramTexts& texts, std::span<const AddVerb> verbs) {
  hold_closed_descriptors();
  ignore_write_signals();
  try {
    CLI::App program("quire trains language models on long documents.", "quire");
    program.set_version_flag("--version", texts.version);
    program.formatter(make_help_formatter());
    program.footer(std::string("quire VERB --help describes a verb and gives an example.\n\n") + kExitCodes);
    Verb root(program);
    root.require_verb();
    for (const AddVerb add : verbs) add(root);
    // `cmake --install` writes these beside the program.
    program.add_flag_callback(
        "--man", [&] { throw CLI::CallForVersion(manual_page(program, texts.number), 0); },
        "Print the manual page, as in quire --man | man -l -");
    program.add_flag_callback(
        "--bash-completion", [&] { throw CLI::CallForVersion(bash_completion(program, texts.keys()), 0); },
        "Print what completes commands in bash, as in source <(quire --bash-completion)");
    const int code = parse_and_run(program, argc, argv, texts.keys);
    Ranks& ranks = Ranks::current();
    const Ranks::Operation operation(ranks, "ending");
    ranks.barrier();  // an error of one rank up to here becomes the exit code of all
    return code;
  } catch (const ClosedOutput&) {
    return end_without_reader();
  } catch (const SharedError& error) {
    return end_with(error.kind(), error.what(), true);
  } catch (const Error& error) {
    return end_with(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return end_with(ErrorKind::memory, "out of memory; use a smaller model, fewer rows or more accumulation");
  } catch (const std::filesystem::filesystem_error& error) {  // usually a folder without permission
    return end_with(ErrorKind::disk, fmt::format("{}: {}", error.path1().string(), error.code().message()));
  } catch (const std::exception& error) {
    return end_with(ErrorKind::internal, fmt::format("internal: {}", error.what()));
  }
}

void on_root_alone(const std::function<void()>& work) {
  Ranks& ranks = Ranks::current();
  if (ranks.size() == 1) return work();
  const Ranks::Operation operation(ranks, "waiting for rank 0");
  ranks.set_deadline(std::chrono::hours(24 * 365));
  ranks.on_root([&] {
    Ranks one;
    const Ranks::Use use(one);
    work();
  });
}

void print(std::string_view text) {
  if (!Ranks::current().is_root()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) note_failed_output();
}

void flush_output() {
  if (!Ranks::current().is_root()) return;
  if (std::fflush(stdout) != 0) note_failed_output();
  if (output_is_closed) throw ClosedOutput();
}

void print_json(const nlohmann::ordered_json& object) {
  print(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace quire
