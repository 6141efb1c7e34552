// What happens when a mapped file becomes shorter: the system sends SIGBUS to the thread that reads what is gone.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace quire {

struct MapGuardEntry;

// While it lives, a SIGBUS whose address lies in the map ends the process with one line that names the file and with
// the exit code of Error(data). Any other SIGBUS goes to the handler that was there before. Reading the map costs
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

// For a process that is one of several ranks, which together report once: from now on the thread that reads what is
// gone writes to the eventfd and waits some seconds for the process to be ended before it does that itself. -1: nobody
// reports for it.
void leave_map_losses_to(int eventfd);
// The message of what is gone, once a thread has read it.
const std::string* lost_map();

}  // namespace quire
