// Memory that the ranks of a communicator share, whether threads or processes, and where they meet.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace quire::nccl_stand_in {

using Stop = std::atomic<bool>;  // a rank that waits goes on when it is set

inline constexpr int kMaxRanks = 8;
inline constexpr size_t kChunk = size_t{16} << 10;  // bytes; a multiple of every element's size

class Room {
 public:
  // Returns the name of a communicator's memory (shm_open).
  Room(const std::string& name, int rank, int size);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // Each returns when all ranks have come, or false when this one was stopped.
  bool join(const Stop& stop);
  bool meet(const Stop& stop);
  bool part(const Stop& stop);

  // Between two meetings every rank reads the entries of all; before the first one it writes its own.
  unsigned char* values(int rank) { return shared_->values[static_cast<size_t>(rank)].data(); }
  uint64_t& mark(int rank) { return shared_->marks[static_cast<size_t>(rank)]; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  struct Shared {  // begins as zeros
    std::atomic<int> joined;
    std::atomic<int> parted;
    std::atomic<int> arrived;
    std::atomic<int> round;
    std::array<uint64_t, kMaxRanks> marks;
    std::array<std::array<unsigned char, kChunk>, kMaxRanks> values;
  };
  bool all_of(std::atomic<int>& count, const Stop& stop);
  static std::shared_ptr<Shared> map(const std::string& name);

  const std::string name_;
  const int rank_;
  const int size_;
  const std::shared_ptr<Shared> shared_;
};

// Sleeps briefly, and longer with every call.
class Pause {
 public:
  void operator()();

 private:
  int calls_ = 0;
};

}  // namespace quire::nccl_stand_in
