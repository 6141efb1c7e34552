// Makes batches ahead of time on a separate thread, so that a step does not wait for the disk.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "data/batches/batch_source.h"

namespace quire {

class Prefetcher : public BatchStream {
 public:
  // At most `depth` batches wait for the consumer.
  explicit Prefetcher(std::unique_ptr<BatchStream> source, size_t depth = 2);
  ~Prefetcher() override;
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the batches of the source in the same order. An exception of the source is thrown here, at its place in the
  // order, and again by every later call.
  std::optional<CursoredBatch> next() override;

 private:
  void produce();

  std::unique_ptr<BatchStream> source_;  // used by the thread only
  size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CursoredBatch> ready_;
  std::exception_ptr error_;
  bool ended_ = false;     // the source has ended
  bool stopping_ = false;  // set by the destructor
  std::thread thread_;
};

}  // namespace quire
