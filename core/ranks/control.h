// What the ranks of a run tell each other: values of the host. Every rank makes the same calls in the same order. A
// call that others do not come to within the deadline, or after which a rank has failed, throws SharedError.
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

// What a rank does, for the message when it fails or does not answer.
struct RankActivity {
  int rank = 0;
  std::string host;
  int64_t step = 0;       // 0: before the first one
  std::string operation;  // "saving the checkpoint"; empty: none that others wait for
};
// "rank 2 on node7, step 17, saving the checkpoint".
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

  // Every rank gets the texts of all, in rank order.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  // Every rank gets the text of the rank `from`; those of the others are not looked at.
  virtual std::string broadcast(const std::string& text, int from) = 0;
  virtual void barrier() = 0;
  // Every rank gets the sums of all values, taken in rank order, or the largest of them.
  enum class Reduction : uint8_t { sum, max };
  virtual void reduce(Reduction reduction, std::span<double> values);

  // How long a rank waits for the others in one call.
  virtual void set_deadline(std::chrono::milliseconds deadline) = 0;
  virtual std::chrono::milliseconds deadline() const = 0;
  // Says what this rank does from now on.
  virtual void set_activity(const RankActivity& activity) = 0;
  // What it said last, on any thread; at least rank and host.
  virtual RankActivity activity() const;
  // Ends the run on all ranks: calls that they are in or make from now on throw SharedError(kind, message). Returns
  // whether this rank is to report it: of a failure that all have, one rank is; of one that came second, none.
  virtual bool fail(ErrorKind kind, const std::string& message) = 0;

  // For collectives, which wait in ways of their own, on any thread. check() throws SharedError once a rank has failed.
  virtual void check() const = 0;
  // Others do not come to a collective within the deadline; this rank has begun so many. Ends the run on all ranks: the
  // message names the rank that is missing. check() throws some seconds later at most. 0 takes it back: they have come.
  virtual void overdue(int64_t begun) = 0;

  // values become the sums of `all`, or the largest, texts of as many numbers.
  static void reduce_in_order(Reduction reduction, const std::vector<std::string>& all, std::span<double> values);
};

}  // namespace quire
