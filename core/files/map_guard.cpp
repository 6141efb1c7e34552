#include "core/files/map_guard.h"

#include <signal.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/check.h"

namespace quire {

// The signal handler may read these at any moment, so an entry is never freed; a later guard reuses it.
struct MapGuardEntry {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0: the entry is free
  std::string message;            // message and line change only while the entry is free
  std::string line;
  MapGuardEntry* next = nullptr;
};

namespace {

// A signal handler can reach only globals.
std::atomic<MapGuardEntry*> first{nullptr};
std::atomic_flag spoken = ATOMIC_FLAG_INIT;
std::atomic<const std::string*> lost{nullptr};
std::atomic<int> reporter{-1};
struct sigaction previous = {};
static_assert(std::atomic<MapGuardEntry*>::is_always_lock_free && std::atomic<uintptr_t>::is_always_lock_free);

std::mutex& guards_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Calls only functions that a signal handler may call. The message replaces a progress line that a terminal may show.
void write_line(const std::string& line) {
  termios settings = {};
  constexpr char kEraseLine[] = "\r\033[K";
  const char* begin = line.data();
  size_t left = line.size();
  if (::tcgetattr(STDERR_FILENO, &settings) == 0) {
    [[maybe_unused]] const ssize_t erased = ::write(STDERR_FILENO, kEraseLine, sizeof(kEraseLine) - 1);
  }
  while (left > 0) {
    const ssize_t written = ::write(STDERR_FILENO, begin, left);
    if (written <= 0) return;
    begin += written;
    left -= static_cast<size_t>(written);
  }
}

void wait_for_reporter() {
  const int descriptor = reporter.load();
  const uint64_t one = 1;
  if (descriptor < 0 || ::write(descriptor, &one, sizeof(one)) < 0) return;
  constexpr int kSeconds = 10;
  for (timespec left{kSeconds, 0}; ::nanosleep(&left, &left) != 0;) {
  }
}

void on_bus_error(int, siginfo_t* information, void*) {
  const auto address = reinterpret_cast<uintptr_t>(information->si_addr);
  for (const MapGuardEntry* entry = first.load(); entry != nullptr; entry = entry->next) {
    if (address < entry->begin.load() || address >= entry->end.load()) continue;
    // Several threads may fault; only the first one reports.
    if (!spoken.test_and_set()) {
      lost.store(&entry->message);
      wait_for_reporter();
      write_line(entry->line);
      ::_exit(static_cast<int>(ErrorKind::data));
    }
    for (;;) ::pause();
  }
  // The fault is not in a guarded map: the access is repeated, and the earlier handler, or the system, gets it.
  ::sigaction(SIGBUS, &previous, nullptr);
}

void install() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  struct sigaction before = {};
  QUIRE_CHECK(::sigaction(SIGBUS, nullptr, &before) == 0, "map guard: sigaction failed");
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction == on_bus_error) return;
  previous = before;
  QUIRE_CHECK(::sigaction(SIGBUS, &action, nullptr) == 0, "map guard: sigaction failed");
}

MapGuardEntry* free_entry() {
  for (MapGuardEntry* entry = first.load(); entry != nullptr; entry = entry->next) {
    if (entry->end.load() == 0) return entry;
  }
  auto* entry = new MapGuardEntry;
  entry->next = first.load();
  first.store(entry);
  return entry;
}

}  // namespace

MapGuard::MapGuard(const void* address, size_t bytes, const std::filesystem::path& path) {
  const std::lock_guard<std::mutex> lock(guards_mutex());
  install();
  entry_ = free_entry();
  entry_->message = fmt::format(
      "{}: became shorter while it was read, or its disk failed; put the whole file back, and do not write over a file "
      "that is in use",
      path.string());
  entry_->line = fmt::format("quire: error: {}\n", entry_->message);
  entry_->begin.store(reinterpret_cast<uintptr_t>(address));
  entry_->end.store(reinterpret_cast<uintptr_t>(address) + bytes);
}

MapGuard::~MapGuard() {
  const std::lock_guard<std::mutex> lock(guards_mutex());
  entry_->end.store(0);
}

void leave_map_losses_to(int eventfd) {
  reporter.store(eventfd);
}

const std::string* lost_map() {
  return lost.load();
}

}  // namespace quire
