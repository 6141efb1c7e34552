// The functions that libquire_mpi.so exports (mpi_world.h).
#include <unistd.h>

#include <array>
#include <cstring>
#include <sstream>

#include "core/check.h"
#include "core/ranks/mpi/mpi_collectives.h"
#include "core/ranks/mpi/mpi_world.h"

namespace quire {

namespace {

constexpr std::chrono::seconds kEnd{20};

// MPI gives "Open MPI v4.1.4, package: Debian OpenMPI, ..." or "MPICH Version:\t4.0.2\nMPICH Release date: ...".
std::string version_of_mpi() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int size = 0;
  MPI_Get_library_version(text.data(), &size);
  std::istringstream words(std::string(text.data(), std::strcspn(text.data(), ",\n")));
  std::string version;
  for (std::string word; words >> word;) {
    if (word == "Version:") continue;
    if (word[0] == 'v') word.erase(0, 1);
    version += version.empty() ? word : " " + word;
  }
  return version;
}

class World : public MpiWorld {
 public:
  explicit World(std::chrono::seconds patience) : patience_(patience) {}

  void begin() {
    if (!thread_.run([this] { start(); }, patience_)) {
      fail(ErrorKind::communication,
           "MPI_Init does not come back since {} s (QUIRE_START_TIMEOUT): a rank has not come to it",
           patience_.count());
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return host_; }
  std::string from_root(const std::string& text) override {
    std::string shared = text;
    on_thread([&] {
      auto bytes = static_cast<uint64_t>(shared.size());
      broadcast(&bytes, sizeof(bytes));
      shared.resize(bytes);
      broadcast(shared.data(), shared.size());
    });
    return shared;
  }
  std::unique_ptr<Collectives> collectives(Control& control) override {
    MPI_Comm communicator = MPI_COMM_NULL;
    on_thread([&] { check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup"); });
    return std::make_unique<MpiCollectives>(thread_, communicator, control, version_of_mpi());
  }
  bool finalize() override {
    return thread_.run([] { MPI_Finalize(); }, kEnd);
  }

 private:
  void on_thread(const std::function<void()>& work) {
    if (!thread_.run(work, patience_)) {
      fail(ErrorKind::communication,
           "MPI: the other ranks do not answer since {} s (QUIRE_START_TIMEOUT), at the start", patience_.count());
    }
  }

  static void broadcast(void* data, size_t bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD, &request), "MPI_Ibcast");
    await_mpi({&request, 1}, [] {});
  }

  void start() {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) fail(ErrorKind::communication, "MPI: this build of it allows no threads");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    find_host();
  }

  // Ranks that share memory are on one host. (Different hosts may have the same name, as containers do.)
  void find_host() {
    struct Place {
      std::array<char, 248> name{};
      int first = 0;  // rank on the host
    };
    MPI_Comm shared = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared),
              "MPI_Comm_split_type");
    Place mine;
    ::gethostname(mine.name.data(), mine.name.size() - 1);
    mine.first = rank_;
    check_mpi(MPI_Bcast(&mine.first, 1, MPI_INT, 0, shared), "MPI_Bcast");
    MPI_Comm_free(&shared);
    std::vector<Place> all(static_cast<size_t>(size_));
    check_mpi(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, MPI_COMM_WORLD),
              "MPI_Allgather");
    host_ = mine.name.data();
    for (const Place& place : all) {
      if (place.name == mine.name && place.first != mine.first) {
        host_ = fmt::format("{}#{}", mine.name.data(), mine.first);
        break;
      }
    }
  }

  const std::chrono::seconds patience_;
  int rank_ = 0;
  int size_ = 1;
  std::string host_;
  MpiThread thread_;
};

std::unique_ptr<MpiWorld> start_world(std::chrono::seconds patience) {
  auto world = std::make_unique<World>(patience);
  try {
    world->begin();
  } catch (...) {
    // The thread hangs in MPI_Init and cannot be joined. The object is abandoned, and the process ends.
    (void)world.release();
    throw;
  }
  return world;
}

}  // namespace

}  // namespace quire

extern "C" __attribute__((visibility("default"))) const quire::MpiLibrary* quire_mpi(const char* build_id) {
  if (std::strcmp(build_id, QUIRE_BUILD_ID) != 0) return nullptr;
  static const quire::MpiLibrary library{quire::version_of_mpi(), &quire::start_world};
  return &library;
}
