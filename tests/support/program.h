// Runs the real program `quire` as a child process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace quire::test {

struct ProgramResult {
  int code = -1;   // exit code; -1 when a signal ended the program
  int signal = 0;  // the signal's number
  std::string out;
  std::string err;
  int64_t resident_bytes = 0;  // most main memory that it had, or that this process had when it began

  // The lines of stderr that begin with "quire: error: ".
  std::vector<std::string> errors() const;
};

struct ProgramOptions {
  std::filesystem::path folder;                                  // to run in; empty: the current one
  std::vector<std::pair<std::string, std::string>> environment;  // added to this process's
  std::filesystem::path out;                                     // instead of capturing, e.g. /dev/full
  bool closed = false;                                           // without stdin, stdout and stderr
  std::vector<int> unread = {};                                  // pipes among them whose reader has gone
  std::vector<std::pair<int, uint64_t>> limits = {};             // RLIMIT_..., as of a user who cannot raise them
  std::string program = "quire";                                 // in the build's bin folder, or a whole path
};

// A program that runs beside the test. The destructor kills what is still running.
class RunningProgram {
 public:
  explicit RunningProgram(std::vector<std::string> arguments, const ProgramOptions& options = {});
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  void send(int signal) const;
  pid_t process() const { return child_; }
  bool running();
  ProgramResult wait();

 private:
  void ended(int status);

  TemporaryDirectory capture_;
  pid_t child_ = -1;
  ProgramResult result_;
};

ProgramResult run_quire(std::vector<std::string> arguments, const ProgramOptions& options = {});

}  // namespace quire::test
