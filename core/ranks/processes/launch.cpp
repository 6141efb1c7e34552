#include "core/ranks/processes/launch.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "core/check.h"

namespace quire {

namespace {

std::optional<int> number_of(const Environment& environment, const char* name, const char* what = "number of ranks") {
  const char* const text = environment(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, value);
  if (read.ec != std::errc{} || read.ptr != end || value < 0) {
    fail(ErrorKind::config, "the environment variable {} is \"{:.200}\", which is no {}", name, text, what);
  }
  return value;
}

std::optional<int> size_of(const Environment& environment, const char* name) {
  constexpr int kMaxRanks = 1 << 16;
  const std::optional<int> size = number_of(environment, name);
  if (size && *size > kMaxRanks) {
    fail(ErrorKind::config, "the environment variable {} is {}: at most {} ranks are possible", name, *size, kMaxRanks);
  }
  return size;
}

// Returns the value, or nullptr when it is not set. An empty value is an error: it mostly comes from a script whose own
// variable was not set.
const char* text_of(const Environment& environment, const char* name) {
  const char* const text = environment(name);
  if (text != nullptr && *text == '\0') fail(ErrorKind::config, "the environment variable {} is empty", name);
  return text;
}

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* host_rank;
};

// The first launcher whose variables are set is used. A batch script of SLURM has SLURM_PROCID, too, but not the step's
// number of tasks.
constexpr Launcher kLaunchers[] = {
    {"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"mpirun of MPICH or a relative", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

std::string one_name_per_start(const Environment& environment, const std::string& file) {
  std::string name = file;
  for (const char* part : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}) {
    if (const char* value = environment(part)) name += fmt::format(".{}", value);
  }
  return name;
}

Launch meet_in_file(const Environment& environment, const std::string& file) {
  const bool slurm = environment("QUIRE_RANKS") == nullptr && environment("SLURM_STEP_NUM_TASKS") != nullptr;
  const char* const rank_name = slurm ? "SLURM_PROCID" : "QUIRE_RANK";
  const char* const size_name = slurm ? "SLURM_STEP_NUM_TASKS" : "QUIRE_RANKS";
  const std::optional<int> rank = number_of(environment, rank_name);
  const std::optional<int> size = size_of(environment, size_name);
  if (!rank || !size) {
    fail(
        ErrorKind::config,
        "QUIRE_RENDEZVOUS is {}, but which rank this is and how many there are is not said: set QUIRE_RANK (0, 1, ...) "
        "and QUIRE_RANKS for each process, or start them with srun",
        file);
  }
  if (*rank >= *size) {
    fail(ErrorKind::config, "{} is {} and {} is {}: ranks are counted from 0, each below their number", rank_name,
         *rank, size_name, *size);
  }
  if (*size == 1) return {};
  return {.way = Launch::Way::file,
          .rank = *rank,
          .size = *size,
          .host_rank = std::nullopt,
          .by = fmt::format("{}={}", size_name, *size),
          .file = one_name_per_start(environment, file)};
}

Launch find_way(const Environment& environment) {
  if (const char* file = text_of(environment, "QUIRE_RENDEZVOUS")) return meet_in_file(environment, file);
  if (environment("QUIRE_RANKS") != nullptr) {
    fail(ErrorKind::config,
         "QUIRE_RANKS is set, but not QUIRE_RENDEZVOUS: name a file that all ranks see, where they can meet");
  }
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int> size = size_of(environment, launcher.size);
    if (!size) continue;
    if (*size <= 1) return {};
    return {.way = Launch::Way::mpi,
            .rank = number_of(environment, launcher.rank).value_or(0),
            .size = *size,
            .host_rank = number_of(environment, launcher.host_rank, "number of a rank"),
            .by = fmt::format("{} ({}={})", launcher.name, launcher.size, *size),
            .file = ""};
  }
  return {};
}

}  // namespace

Launch find_launch(const Environment& environment) {
  Launch launch = find_way(environment);
  if (launch.way == Launch::Way::alone) return launch;
  constexpr const char* kName = "QUIRE_START_TIMEOUT";
  if (const std::optional<int> seconds = number_of(environment, kName, "number of seconds above 0")) {
    if (*seconds < 1)
      fail(ErrorKind::config, "the environment variable {} is 0; give a number of seconds above 0", kName);
    launch.patience = std::chrono::seconds(*seconds);
  }
  if (const char* address = text_of(environment, "QUIRE_ADDRESS")) launch.address = address;
  if (const std::optional<int> port = number_of(environment, "QUIRE_PORT", "TCP port")) {
    if (*port < 1 || *port > UINT16_MAX) {
      fail(ErrorKind::config, "the environment variable QUIRE_PORT is {}; a TCP port is 1 to {}", *port, UINT16_MAX);
    }
    launch.port = *port;
  }
  return launch;
}

Launch find_launch() {
  return find_launch([](const char* name) -> const char* { return std::getenv(name); });
}

std::string own_gpu(int host_rank, const char* visible, int64_t gpus) {
  std::vector<std::string> names;
  if (visible != nullptr) {
    std::istringstream list(visible);
    for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  } else {
    for (int64_t gpu = 0; gpu < gpus; ++gpu) names.push_back(std::to_string(gpu));
  }
  return names.size() > 1 ? names[static_cast<size_t>(host_rank) % names.size()] : "";
}

}  // namespace quire
