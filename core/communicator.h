// Collectives between ranks. Sums are taken in rank order, so every rank gets the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace quire {

class Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce_sum(std::span<float> values) = 0;
  virtual void all_reduce_sum(std::span<double> values) = 0;
  virtual void barrier() = 0;
};

// One rank: every collective is the identity.
std::unique_ptr<Communicator> make_local_communicator();

// Ranks that are threads of this process, for tests. One communicator per thread. When a rank is destroyed before it
// reached a collective that another waits in, the waiting rank throws Error(communication).
std::vector<std::unique_ptr<Communicator>> make_in_process_group(int size);

}  // namespace quire
