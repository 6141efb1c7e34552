#include "core/ranks/in_process.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "core/background_thread.h"
#include "core/check.h"
#include "core/log.h"
#include "core/ranks/cpu_collective.h"
#include "core/ranks/in_process_group.h"

namespace quire {

namespace {

// The data that the threads exchange. Texts have two places that are used in turn: a fast rank writes to one while
// slower ones still read the other.
struct Shared {
  explicit Shared(int size)
      : group(size), control(size), collectives(size), texts{Texts(at(size)), Texts(at(size))}, parts(at(size)) {}
  static size_t at(int size) { return static_cast<size_t>(size); }
  using Texts = std::vector<std::string>;

  InProcessGroup group;
  InProcessGroup::Meeting control;
  InProcessGroup::Meeting collectives;
  std::optional<std::chrono::milliseconds> deadline;  // overrides the deadline that the ranks set
  std::array<Texts, 2> texts;
  std::vector<Tensor> parts;
};

class InProcessControl : public Control {
 public:
  InProcessControl(std::shared_ptr<Shared> shared, int rank, std::string host)
      : shared_(std::move(shared)), rank_(rank), host_(std::move(host)) {}

  int rank() const override { return rank_; }
  int size() const override { return shared_->group.size(); }
  std::string host() const override { return host_; }
  std::vector<std::string> gather(const std::string& mine) override {
    Shared::Texts& texts = shared_->texts[turn_];
    turn_ = 1 - turn_;
    texts[static_cast<size_t>(rank_)] = mine;
    shared_->group.meet(shared_->control, rank_);
    return texts;
  }
  std::string broadcast(const std::string& text, int from) override {
    return gather(from == rank_ ? text : "")[static_cast<size_t>(from)];
  }
  void barrier() override { shared_->group.meet(shared_->control, rank_); }
  void set_deadline(std::chrono::milliseconds deadline) override {
    shared_->group.set_deadline(shared_->deadline.value_or(deadline));
  }
  std::chrono::milliseconds deadline() const override { return shared_->group.deadline(); }
  void set_activity(const RankActivity& activity) override { shared_->group.set_activity(activity); }
  RankActivity activity() const override { return shared_->group.activity(rank_); }
  bool fail(ErrorKind kind, const std::string& message) override { return shared_->group.fail(kind, message); }
  void check() const override { shared_->group.check(); }
  void overdue(int64_t) override {}  // collectives of threads use InProcessGroup::meet, which detects missing ranks

 private:
  std::shared_ptr<Shared> shared_;
  int rank_;
  std::string host_;
  size_t turn_ = 0;
};

// A thread of each rank does the operations, one after the other.
class InProcessCollectives : public Collectives {
 public:
  InProcessCollectives(std::shared_ptr<Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  ~InProcessCollectives() override {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  InProcessCollectives(const InProcessCollectives&) = delete;
  InProcessCollectives& operator=(const InProcessCollectives&) = delete;

  void all_reduce(const Tensor& values) override { begin(CpuCollective::all_reduce(values, size())); }
  void reduce_scatter(const Tensor& values, const PartBounds& bounds) override {
    begin(CpuCollective::reduce_scatter(values, bounds, size()));
  }
  void all_gather(const Tensor& values, const PartBounds& bounds) override {
    begin(CpuCollective::all_gather(values, bounds, size()));
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ == begun_ || error_; });
    if (error_) std::rethrow_exception(error_);
  }
  int64_t finished() const override {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

 private:
  size_t size() const { return shared_->parts.size(); }

  void begin(CpuCollective work) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = start_thread("a thread that sums", [this] { serve(); });
    queue_.push_back(std::move(work));
    ++begun_;
    changed_.notify_all();
  }

  void serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      const CpuCollective work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        work.values.dtype() == DType::f64 ? run<double>(work) : run<float>(work);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      ++finished_;
      if (error) error_ = error;
      changed_.notify_all();
      if (error) return;
    }
  }

  // A rank writes only its own part of its own tensor, which no other rank reads at that time.
  template <typename T>
  void run(const CpuCollective& work) {
    shared_->parts[static_cast<size_t>(rank_)] = work.values;
    meet();
    T* const mine = work.values.data<T>();
    if (work.reduces) {
      const auto me = static_cast<size_t>(rank_);
      std::vector<const T*> parts;
      for (const Tensor& part : shared_->parts) parts.push_back(part.data<T>() + work.bounds[me]);
      sum_in_rank_order<T>(parts, mine + work.bounds[me], work.bounds[me + 1] - work.bounds[me]);
      meet();
    }
    if (!work.gathers) return;
    for (size_t rank = 0; rank < shared_->parts.size(); ++rank) {
      if (static_cast<int>(rank) == rank_) continue;
      const T* from = shared_->parts[rank].data<T>();
      std::copy(from + work.bounds[rank], from + work.bounds[rank + 1], mine + work.bounds[rank]);
    }
    meet();
  }

  void meet() { shared_->group.meet(shared_->collectives, rank_); }

  std::shared_ptr<Shared> shared_;
  int rank_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CpuCollective> queue_;
  int64_t begun_ = 0;
  int64_t finished_ = 0;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

// Calls work and tells the others when it fails. Returns whether it threw.
bool throws(Ranks& ranks, const std::function<void(Ranks&)>& work) {
  try {
    work(ranks);
    return false;
  } catch (const SharedError& error) {
    ranks.fail(error.kind(), error.what(), true);
  } catch (const Error& error) {
    ranks.fail(error.kind(), error.what(), false);
  } catch (const std::bad_alloc&) {
    ranks.fail(ErrorKind::memory, "out of memory", false);
  } catch (const std::exception& error) {
    ranks.fail(ErrorKind::internal, error.what(), false);
  }
  return true;
}

}  // namespace

void run_in_process(int size, const std::function<void(Ranks&)>& work, const InProcessOptions& options) {
  QUIRE_CHECK(size >= 1 && (options.hosts.empty() || options.hosts.size() == static_cast<size_t>(size)),
              "ranks: {} of them, {} hosts", size, options.hosts.size());
  if (size == 1) {
    Ranks one;
    one.set_probe(options.probe);
    const Ranks::Use use(one);
    return work(one);
  }
  const auto shared = std::make_shared<Shared>(size);
  shared->deadline = options.deadline;
  std::atomic<bool> threw = false;
  std::vector<std::thread> threads;
  const auto run_rank = [&](int rank) {
    return [&, rank] {
      const std::string host = options.hosts.empty() ? "localhost" : options.hosts[static_cast<size_t>(rank)];
      try {
        Ranks ranks(std::make_unique<InProcessControl>(shared, rank, host),
                    std::make_unique<InProcessCollectives>(shared, rank));
        ranks.set_probe(options.probe);
        const Ranks::Use use(ranks);
        const LogVoice voice(rank);
        if (throws(ranks, work)) threw = true;
      } catch (const std::exception& error) {  // an error before the ranks existed
        shared->group.fail(ErrorKind::communication, error.what());
        threw = true;
      }
      shared->group.leave(rank);
    };
  };
  threads.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    try {
      threads.push_back(start_thread(fmt::format("rank {} of {}", rank, size), run_rank(rank)));
    } catch (const Error& error) {
      shared->group.fail(error.kind(), error.what());
      shared->group.leave(rank);
      threw = true;
    }
  }
  if (!shared->group.wait_for_all(options.grace)) {
    // A thread cannot be ended from outside, so the process ends.
    const InProcessGroup::Failure failure = *shared->group.failure();
    if (!options.work_reports || !failure.reported) log_error(failure.message);
    ::_exit(static_cast<int>(failure.kind));
  }
  for (std::thread& thread : threads) thread.join();
  if (!threw) return;
  const InProcessGroup::Failure failure = *shared->group.failure();
  throw Error(failure.kind, failure.message);
}

}  // namespace quire
