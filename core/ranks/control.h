// Exchanges host values between the ranks of a run. Every rank makes the same calls in the same order. A call throws
// SharedError when other ranks do not join it within the deadline, or when a rank has failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace quire {

// An error that all ranks have: each throws it with the same message, and one of them reports it.
class SharedError : public Error {
 public:
  using Error::Error;
  ~SharedError() override;
};

// The activity of a rank, for the message when it fails or does not answer.
struct RankActivity {
  int rank = 0;
  std::string host;
  int64_t step = 0;       // 0: before the first one
  std::string operation;  // "saving the checkpoint"; empty: none that others wait for
};
// Returns "rank 2 on node7, step 17, saving the checkpoint".
std::string describe(const RankActivity& activity);

class Control {
 public:
  Control() = default;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  virtual ~Control();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host() const = 0;

  // Returns the texts of all ranks, in rank order.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  // Returns the text of rank `from`; the texts of other ranks are ignored.
  virtual std::string broadcast(const std::string& text, int from) = 0;
  virtual void barrier() = 0;
  // Replaces `values` by the sums over all ranks, taken in rank order, or by the largest ones.
  enum class Reduction : uint8_t { sum, max };
  virtual void reduce(Reduction reduction, std::span<double> values);

  // Sets how long a rank waits for the others in one call.
  virtual void set_deadline(std::chrono::milliseconds deadline) = 0;
  virtual std::chrono::milliseconds deadline() const = 0;
  // Sets what this rank is doing from now on.
  virtual void set_activity(const RankActivity& activity) = 0;
  // Returns what this rank set last, on any thread; at least rank and host.
  virtual RankActivity activity() const;
  // Ends the run on all ranks: their current or next call throws SharedError(kind, message). Returns whether this rank
  // is to report the error: when all ranks have the same failure, exactly one reports it; a rank whose failure came
  // second reports nothing.
  virtual bool fail(ErrorKind kind, const std::string& message) = 0;

  // Throws SharedError once a rank has failed. Collectives, which wait by other means, call this on any thread.
  virtual void check() const = 0;
  // A collective calls this when other ranks do not join it within the deadline; `begun` is the number of operations
  // that this rank has begun. It ends the run on all ranks with a message that names the missing rank, and check()
  // throws within some seconds. 0 withdraws the call: the others have joined.
  virtual void overdue(int64_t begun) = 0;

  // Replaces `values` by the sums, or the largest, of the numbers in the texts `all`, which have as many numbers each.
  static void reduce_in_order(Reduction reduction, const std::vector<std::string>& all, std::span<double> values);
};

}  // namespace quire
