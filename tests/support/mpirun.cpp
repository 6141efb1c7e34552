#include "tests/support/mpirun.h"

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/ranks/processes/rank_process.h"

namespace quire::test {

namespace {

bool is_open_mpi() {
  static const bool open = find_mpi().version.starts_with("Open MPI");
  return open;
}

// The variable of a process, or -1.
int number_in_environment(const std::filesystem::path& process, const std::string& name) {
  std::ifstream stream(process / "environ");
  for (std::string variable; std::getline(stream, variable, '\0');) {
    if (variable.starts_with(name + "=")) return std::stoi(variable.substr(name.size() + 1));
  }
  return -1;
}

pid_t parent_of(const std::filesystem::path& process) {
  std::ifstream stream(process / "stat");
  std::string text;
  std::getline(stream, text);
  std::istringstream after(text.substr(std::min(text.size(), text.rfind(')') + 2)));
  char state = 0;
  pid_t parent = 0;
  after >> state >> parent;
  return state == 'Z' ? 0 : parent;
}

}  // namespace

std::string missing_mpirun() {
  const MpiReport report = find_mpi();
  if (report.version.empty()) return report.reason;
  return std::string(QUIRE_MPIEXEC).empty() ? "there is no mpirun of " + report.version : "";
}

std::vector<std::string> mpirun_arguments(int size, const std::vector<std::string>& arguments,
                                          const MpirunOptions& options) {
  std::vector<std::string> all;
  if (is_open_mpi()) {
    all = {"--allow-run-as-root",
           "--oversubscribe",
           "--bind-to",
           "none",
           "--quiet",
           "--mca",
           "btl_vader_single_copy_mechanism",
           "none"};
  }
  all.insert(all.end(), options.of_mpirun.begin(), options.of_mpirun.end());
  all.insert(all.end(), {"-np", std::to_string(size), QUIRE_BINARY_DIR "/bin/" + options.program});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

ProgramOptions mpirun_program(const MpirunOptions& options) {
  ProgramOptions program;
  program.program = QUIRE_MPIEXEC;
  if (options.told_to_end) program.environment.emplace_back("QUIRE_TEST_TOLD_TO_END", "1");
  if (!options.misbehaves.empty()) program.environment.emplace_back("QUIRE_TEST_AT", options.misbehaves);
  return program;
}

ProgramResult under_mpirun(int size, const std::vector<std::string>& arguments, const MpirunOptions& options) {
  return run_quire(mpirun_arguments(size, arguments, options), mpirun_program(options));
}

std::vector<pid_t> processes_of_ranks(pid_t mpirun, int size) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < until) {
    std::vector<pid_t> found(static_cast<size_t>(size), 0);
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos || parent_of(entry.path()) != mpirun) continue;
      const int rank = number_in_environment(entry.path(), "OMPI_COMM_WORLD_RANK");
      if (rank < 0 || rank >= size) continue;
      found[static_cast<size_t>(rank)] = std::stoi(name);
      ++count;
    }
    if (count == size) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

}  // namespace quire::test
