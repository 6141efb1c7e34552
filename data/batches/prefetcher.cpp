#include "data/batches/prefetcher.h"

#include "core/background_thread.h"
#include "core/check.h"

namespace quire {

Prefetcher::Prefetcher(std::unique_ptr<BatchStream> source, size_t depth) : source_(std::move(source)), depth_(depth) {
  QUIRE_CHECK(depth > 0, "prefetcher: depth {}", depth);
  thread_ = start_thread("the thread that reads batches", [this] { produce(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::produce() {
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || ready_.size() < depth_; });
      if (stopping_) return;
    }
    std::optional<CursoredBatch> batch;
    std::exception_ptr error;
    try {
      batch = source_->next();
    } catch (...) {
      error = std::current_exception();
    }
    const bool last = !batch.has_value();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (batch) ready_.push_back(std::move(*batch));
      error_ = error;
      ended_ = last;
    }
    changed_.notify_all();
    if (last) return;
  }
}

std::optional<CursoredBatch> Prefetcher::next() {
  std::optional<CursoredBatch> batch;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return ended_ || !ready_.empty(); });
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    batch = std::move(ready_.front());
    ready_.pop_front();
  }
  changed_.notify_all();
  return batch;
}

}  // namespace quire
