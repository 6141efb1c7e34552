#include "tests/support/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace quire::test {

namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Runs in the child, between fork and exec.
void redirect(const std::filesystem::path& path, int descriptor) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(127);
  ::close(file);
}

}  // namespace

std::vector<std::string> ProgramResult::errors() const {
  std::vector<std::string> lines;
  std::istringstream stream(err);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("quire: error: ", 0) == 0) lines.push_back(line);
  }
  return lines;
}

RunningProgram::RunningProgram(std::vector<std::string> arguments, const ProgramOptions& options) {
  arguments.insert(arguments.begin(), std::filesystem::path(QUIRE_BINARY_DIR) / "bin" / options.program);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  child_ = ::fork();
  if (child_ < 0) throw std::runtime_error("cannot start a child process");
  if (child_ > 0) return;
  redirect(options.out.empty() ? capture_ / "out" : options.out, STDOUT_FILENO);
  redirect(capture_ / "err", STDERR_FILENO);
  for (int descriptor = 0; options.closed && descriptor <= STDERR_FILENO; ++descriptor) ::close(descriptor);
  for (const int descriptor : options.unread) {
    int pipe[2] = {};
    if (::pipe(pipe) != 0 || ::dup2(pipe[1], descriptor) < 0) ::_exit(127);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  for (const auto& [resource, value] : options.limits) {
    const rlimit limit{value, value};
    if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) ::_exit(127);
  }
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(127);
  ::execv(pointers.front(), pointers.data());
  ::_exit(127);
}

RunningProgram::~RunningProgram() {
  if (!running()) return;
  send(SIGKILL);
  wait();
}

void RunningProgram::send(int signal) const {
  if (child_ > 0) ::kill(child_, signal);
}

void RunningProgram::ended(int status) {
  child_ = -1;
  if (WIFEXITED(status)) result_.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  result_.out = text_of(capture_ / "out");
  result_.err = text_of(capture_ / "err");
}

bool RunningProgram::running() {
  int status = 0;
  if (child_ > 0 && ::waitpid(child_, &status, WNOHANG) == child_) ended(status);
  return child_ > 0;
}

ProgramResult RunningProgram::wait() {
  int status = 0;
  struct rusage usage {};
  if (child_ > 0 && ::wait4(child_, &status, 0, &usage) == child_) {
    ended(status);
    result_.resident_bytes = int64_t{usage.ru_maxrss} * 1024;
  }
  return result_;
}

ProgramResult run_quire(std::vector<std::string> arguments, const ProgramOptions& options) {
  return RunningProgram(std::move(arguments), options).wait();
}

}  // namespace quire::test
