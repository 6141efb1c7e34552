// Handles a mapped file that becomes shorter: the system then sends SIGBUS to the thread that reads beyond the new end.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace quire {

struct MapGuardEntry;

// While a guard lives, a SIGBUS with an address in its map ends the process with one line that names the file and with
// the exit code of Error(data). Any other SIGBUS goes to the handler that was installed before. Reading the map costs
// nothing more.
class MapGuard {
 public:
  MapGuard(const void* address, size_t bytes, const std::filesystem::path& path);
  ~MapGuard();
  MapGuard(const MapGuard&) = delete;
  MapGuard& operator=(const MapGuard&) = delete;

 private:
  MapGuardEntry* entry_;
};

// Serves a process that is one of several ranks, which together report an error once. After this call the thread that
// reads beyond the end writes to the eventfd and waits some seconds for the process to be ended before it ends the
// process by itself. -1 switches this off.
void leave_map_losses_to(int eventfd);
// Returns the error message after a thread has read beyond the end of a mapped file, otherwise nullptr.
const std::string* lost_map();

}  // namespace quire
