#include "core/communicator.h"

#include <condition_variable>
#include <mutex>

#include "core/check.h"

namespace quire {

namespace {

class LocalCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(std::span<float>) override {}
  void all_reduce_sum(std::span<double>) override {}
  void barrier() override {}
};

struct Group {
  explicit Group(int size) : members(size), parts(static_cast<size_t>(size)) {}

  // Returns when all members have arrived.
  void meet() {
    std::unique_lock lock(mutex);
    const uint64_t mine = round;
    if (++arrived == members) {
      arrived = 0;
      ++round;
      changed.notify_all();
      return;
    }
    changed.wait(lock, [&] { return round != mine || gone; });
    if (round == mine) fail(ErrorKind::communication, "in-process group: another rank ended before a collective");
  }

  const int members;
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  uint64_t round = 0;
  bool gone = false;
  std::vector<void*> parts;
};

class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~InProcessCommunicator() override {
    const std::lock_guard lock(group_->mutex);
    group_->gone = true;
    group_->changed.notify_all();
  }
  InProcessCommunicator(const InProcessCommunicator&) = delete;
  InProcessCommunicator& operator=(const InProcessCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return group_->members; }
  void all_reduce_sum(std::span<float> values) override { sum(values); }
  void all_reduce_sum(std::span<double> values) override { sum(values); }
  void barrier() override { group_->meet(); }

 private:
  template <typename T>
  void sum(std::span<T> values) {
    group_->parts[static_cast<size_t>(rank_)] = values.data();
    group_->meet();
    std::vector<T> total(values.size());
    for (int member = 0; member < group_->members; ++member) {
      const T* part = static_cast<const T*>(group_->parts[static_cast<size_t>(member)]);
      for (size_t i = 0; i < total.size(); ++i) total[i] += part[i];
    }
    group_->meet();  // nobody overwrites its part while another still reads it
    std::copy(total.begin(), total.end(), values.begin());
  }

  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

Communicator::~Communicator() = default;

std::unique_ptr<Communicator> make_local_communicator() {
  return std::make_unique<LocalCommunicator>();
}

std::vector<std::unique_ptr<Communicator>> make_in_process_group(int size) {
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> members;
  for (int rank = 0; rank < size; ++rank) members.push_back(std::make_unique<InProcessCommunicator>(group, rank));
  return members;
}

}  // namespace quire
