#include "tests/support/nccl_stand_in/room.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace quire::nccl_stand_in {

void Pause::operator()() {
  if (++calls_ < 20) {
    ::sched_yield();
  } else {
    ::usleep(calls_ < 200 ? 20 : 500);
  }
}

// Ranks that are threads have it at one address, so that ThreadSanitizer sees what orders them.
std::shared_ptr<Room::Shared> Room::map(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Shared>> mapped;
  const std::lock_guard lock(mutex);
  if (auto known = mapped[name].lock()) return known;
  const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) {
    std::perror("nccl_stand_in: shared memory");
    std::abort();
  }
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) std::abort();
  std::shared_ptr<Shared> made(static_cast<Shared*>(memory), [](Shared* shared) { ::munmap(shared, sizeof(Shared)); });
  mapped[name] = made;
  return made;
}

Room::Room(const std::string& name, int rank, int size) : name_(name), rank_(rank), size_(size), shared_(map(name)) {}

Room::~Room() {
  ::shm_unlink(name_.c_str());  // needed when not all ranks have come
}

bool Room::all_of(std::atomic<int>& count, const Stop& stop) {
  ++count;
  Pause pause;
  while (count < size_) {
    if (stop) return false;
    pause();
  }
  return true;
}

bool Room::join(const Stop& stop) {
  if (!all_of(shared_->joined, stop)) return false;
  ::shm_unlink(name_.c_str());  // all have it; whatever happens to them, nothing is left
  return true;
}

bool Room::part(const Stop& stop) {
  return all_of(shared_->parted, stop);
}

bool Room::meet(const Stop& stop) {
  const int round = shared_->round;
  if (++shared_->arrived == size_) {
    shared_->arrived = 0;
    ++shared_->round;
    return true;
  }
  Pause pause;
  while (shared_->round == round) {
    if (stop) return false;
    pause();
  }
  return true;
}

}  // namespace quire::nccl_stand_in
