#include "core/ranks/processes/rank_process.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <thread>

#include "core/awake_time.h"
#include "core/check.h"
#include "core/cores.h"
#include "core/files/file_io.h"
#include "core/files/write_signals.h"
#include "core/library.h"
#include "core/log.h"
#include "core/ranks/mpi/mpi_world.h"
#include "core/ranks/processes/contact.h"
#include "core/ranks/processes/launch.h"
#include "core/ranks/processes/socket_control.h"
#include "core/ranks/ranks.h"

namespace quire {

namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::duration<unsigned> kLastWords{3};

const MpiLibrary* load_mpi(std::string& reason) {
  const std::filesystem::path path = library_folder() / "libquire_mpi.so";
  if (!std::filesystem::exists(path)) {
    reason = "this build has no libquire_mpi.so, because MPI was not found";
    return nullptr;
  }
  // Symbols are shared, because the plugins that Open MPI loads look for its symbols.
  const auto find = reinterpret_cast<FindMpi>(library_function(path, "quire_mpi", reason, true));
  const MpiLibrary* const library = find == nullptr ? nullptr : find(build_id());
  if (library == nullptr && reason.empty()) {
    reason = "libquire_mpi.so: built from other sources than libquire.so; build both again";
  }
  return library;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// Ends this process with its launcher; nobody else would end it.
void end_with_parent() {
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(static_cast<int>(ErrorKind::communication));
}

// When a rank has died, mpirun sends SIGTERM to the others, while one of them still has to report which it was: it gets
// at most kLastWords for that. mpirun kills them one second after its signal.
void delay_termination() {
  const auto end_later = [](int) {
    std::signal(SIGALRM, [](int) {
      std::signal(SIGTERM, SIG_DFL);
      std::raise(SIGTERM);
    });
    ::alarm(kLastWords.count());
  };
  std::signal(SIGTERM, end_later);
}

std::unique_ptr<MpiWorld> start_mpi(const Launch& launch) {
  std::string reason;
  const MpiLibrary* const mpi = load_mpi(reason);
  if (mpi == nullptr) {
    fail(ErrorKind::communication,
         "{} has started {} ranks, but MPI cannot be used: {}; install libopenmpi-dev and build again", launch.by,
         launch.size, reason);
  }
  std::unique_ptr<MpiWorld> world = mpi->start(launch.patience);
  if (world->size() != launch.size) {
    fail(
        ErrorKind::communication,
        "{} has started {} ranks, but this program is built with {}, which sees {}: start it with the mpirun of {}, or "
        "build it with the other MPI (cmake -DMPI_C_COMPILER=...)",
        launch.by, launch.size, mpi->version, world->size(), mpi->version);
  }
  return world;
}

// Returns the contact that rank 0 of this start or of an earlier one has written to the file; empty while there is
// none.
std::string contact_in(const std::string& file) {
  std::error_code ignored;
  std::string text;
  try {
    if (std::filesystem::exists(file, ignored)) {
      text = read_text_file(file, {.kind = ErrorKind::communication, .max_bytes = int64_t{1} << 16});
    }
  } catch (const Error&) {
    if (std::filesystem::exists(file, ignored)) throw;  // otherwise rank 0 has just removed it
  }
  if (text.empty() || is_contact(text)) return text;
  fail(ErrorKind::communication,
       "QUIRE_RENDEZVOUS: {} holds something else than what rank 0 writes for the others; name a file that does not "
       "exist",
       file);
}

// Writes the contact with access for this user alone, because the token in it is secret.
void write_contact(const std::string& file, const std::string& contact) {
  contact_in(file);  // a file of something else is not written over
  const std::filesystem::path part = fmt::format("{}.{}", file, ::getpid());
  try {
    File out = File::create(part);
    std::filesystem::permissions(part, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    out.write(std::as_bytes(std::span(contact)));
    out.flush();
    rename_durably(part, file);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    throw;
  }
}

std::string read_contact(const Launch& launch, const Member& member, AwakeTime& waited, std::chrono::seconds tried) {
  const std::string& file = launch.file;
  while (waited.passed() + tried < launch.patience) {
    if (std::string text = contact_in(file); !text.empty()) return text;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fail(ErrorKind::communication, "QUIRE_RENDEZVOUS: rank {} on {} waited {} s for rank 0 to write {}", member.rank,
       member.host, launch.patience.count(), file);
}

std::unique_ptr<FrameSocket> find_root(const Launch& launch, const Member& member, MpiWorld* world) {
  if (world != nullptr) return connect_to_root(world->from_root(""), member, launch.patience);
  AwakeTime waited;               // for the file; what passes in attempts counts in `tried`
  std::chrono::seconds tried{0};  // an attempt that fails takes all of its patience, stops left aside
  // The time per attempt grows, because rank 0 may have more unreachable addresses than can be tried in a short time.
  for (std::chrono::seconds patience = kPatience;; patience = std::min(2 * patience, 8 * kPatience)) {
    // The file may be left over from an earlier start, so it is read again for every attempt.
    const std::string contact = read_contact(launch, member, waited, tried);
    const bool last = waited.passed() + tried + 2 * patience > launch.patience;
    try {
      return connect_to_root(contact, member, patience);
    } catch (const Error&) {
      if (last) throw;
      tried += patience;
    }
  }
}

std::unique_ptr<SocketControl> join(const Launch& launch, MpiWorld* world) {
  const Member member{launch.rank, launch.size, world != nullptr ? world->host() : host_name()};
  if (member.rank > 0) return std::make_unique<SocketControl>(member, find_root(launch, member, world));
  Rendezvous place(launch.address, launch.port);
  if (world != nullptr) {
    world->from_root(place.contact());
  } else {
    write_contact(launch.file, place.contact());
  }
  auto control = std::make_unique<SocketControl>(member, place.receive(member.size, launch.patience));
  std::error_code ignored;
  if (world == nullptr) std::filesystem::remove(launch.file, ignored);
  return control;
}

// Without MPI there are no collectives for CPU tensors.
class NoCollectives : public Collectives {
 public:
  void all_reduce(const Tensor&) override { refuse(); }
  void reduce_scatter(const Tensor&, const PartBounds&) override { refuse(); }
  void all_gather(const Tensor&, const PartBounds&) override { refuse(); }
  void wait() override {}
  int64_t finished() const override { return 0; }

 private:
  [[noreturn]] static void refuse() {
    throw SharedError(ErrorKind::config,
                      "QUIRE_RENDEZVOUS: ranks that meet in a file can only train on GPUs (run.device: cuda); start "
                      "ranks that compute on the CPU with mpirun");
  }
};

// Warns when a rank is bound to few cores: launchers bind ranks to single cores unless they are told otherwise.
void warn_of_binding(const Ranks& ranks) {
  const auto bound = static_cast<int>(allowed_core_list().size());
  const int host = cores_of_parent();
  if (!ranks.is_root() || bound * ranks.host_size() >= host) return;
  log_warn(
      fmt::format("the launcher has bound each rank to {} of the {} cores here, and the {} ranks leave some idle; give "
                  "mpirun --bind-to none, or --map-by slot:PE={}",
                  bound, host, ranks.host_size(), host / ranks.host_size()));
}

// Makes only this rank's own GPU visible.
void choose_gpu(int host_rank) {
  constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
  std::error_code none;
  const std::filesystem::directory_iterator gpus("/proc/driver/nvidia/gpus", none);
  const std::string own = own_gpu(host_rank, std::getenv(kVisible), std::distance(begin(gpus), end(gpus)));
  if (!own.empty()) ::setenv(kVisible, own.c_str(), 1);
}

[[noreturn]] void end_process(int code) {
  std::fflush(nullptr);
  ::_exit(code);
}

// Ranks that have not found each other yet each have the error, so they end one after the other. The first one that
// ends makes the launcher end the others, also a stopped one that wakes up now; mpirun takes a second or two for it.
[[noreturn]] void end_at_start(const Launch& launch, ErrorKind kind, const std::string& message) {
  std::this_thread::sleep_for(std::chrono::seconds(2 + 3 * std::min(launch.rank, 3)));
  log_error(fmt::format("rank {} on {}, starting: {}", launch.rank, host_name(), message));
  end_process(static_cast<int>(kind));
}

[[noreturn]] void run_rank(const Launch& launch, const std::function<int()>& program) {
  std::unique_ptr<MpiWorld> world;
  std::unique_ptr<Ranks> ranks;
  SocketControl* control = nullptr;
  try {
    Launch mine = launch;
    // This comes before MPI, which may start CUDA by itself; the visible GPUs cannot change after that.
    if (launch.host_rank) choose_gpu(*launch.host_rank);
    if (launch.way == Launch::Way::mpi) {
      world = start_mpi(launch);
      mine.rank = world->rank();
    }
    std::unique_ptr<SocketControl> joined = join(mine, world.get());
    control = joined.get();
    std::unique_ptr<Collectives> collectives = world ? world->collectives(*control) : std::make_unique<NoCollectives>();
    ranks = std::make_unique<Ranks>(std::move(joined), std::move(collectives));
  } catch (const Error& error) {
    end_at_start(launch, error.kind(), error.what());
  } catch (const std::exception& error) {
    end_at_start(launch, ErrorKind::internal, error.what());
  }
  int code = 0;
  {
    const Ranks::Use use(*ranks);
    const LogVoice voice(ranks->rank());
    warn_of_binding(*ranks);
    if (!launch.host_rank) choose_gpu(ranks->host_rank());
    delay_termination();
    code = program();
  }
  // The process ends at once when the run has failed; it waits for nothing.
  if (const std::optional<int> failed = control->leave()) end_process(code != 0 ? code : *failed);
  ranks.reset();
  if (world) world->finalize();
  end_process(code);
}

}  // namespace

// The destructor is defined here because this file is built without MPI, too.
MpiWorld::~MpiWorld() = default;

int run_as_rank(const std::function<int()>& program) {
  ignore_write_signals();
  Launch launch;
  try {
    launch = find_launch();
  } catch (const Error& error) {
    log_error(error.what());
    return error.exit_code();
  }
  if (launch.way == Launch::Way::alone) return program();
  end_with_parent();
  run_rank(launch, program);
}

MpiReport find_mpi() {
  MpiReport report;
  if (const MpiLibrary* const library = load_mpi(report.reason)) report.version = library->version;
  return report;
}

}  // namespace quire
