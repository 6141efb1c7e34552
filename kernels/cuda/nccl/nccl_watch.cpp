#include "kernels/cuda/nccl/nccl_watch.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/log.h"

namespace quire::cuda {

namespace {

std::chrono::milliseconds since(NcclOperations::Clock::time_point then) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(NcclOperations::Clock::now() - then);
}

std::exception_ptr communication_error(const std::string& message) {
  return std::make_exception_ptr(Error(ErrorKind::communication, message));
}

}  // namespace

void NcclFailure::set(std::exception_ptr error) {
  error_ = std::move(error);
  set_.store(true, std::memory_order_release);
}

void NcclFailure::check() const {
  if (is_set()) std::rethrow_exception(error_);
}

void NcclWatched::watch() {
  for (;;) {
    bool leaving = false;
    bool at_once = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, limits_.look, [&] { return leaving_; });
      leaving = leaving_;
      at_once = leaving_ && !in_good_order_;
    }
    if (const std::exception_ptr error = look()) {
      failure.set(error);
      at_once = true;
    }
    if (!leaving && !at_once) continue;
    at_once ? abort() : end();
    return done();
  }
}

std::exception_ptr NcclWatched::look() {
  if (const std::exception_ptr error = error_of_control()) return error;
  try {
    std::exception_ptr error = error_of_nccl();
    if (!error) error = error_of_age();
    return error ? told(error) : nullptr;
  } catch (...) {  // an error of the GPU about an event
    return told(std::current_exception());
  }
}

// Tells the other ranks about an error, since this rank's thread may wait for them, and they for it. Returns the error
// that all ranks report.
std::exception_ptr NcclWatched::told(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (control_ == nullptr || control_->size() == 1) return error;
    ErrorKind kind = ErrorKind::internal;
    std::string message = describe(control_->activity()) + ": ";
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      kind = known.kind();
      message += known.what();
    } catch (const std::exception& other) {
      message += other.what();
    }
    if (control_->fail(kind, message)) log_error(message);
  }
  const std::exception_ptr shared = error_of_control();
  return shared ? shared : error;
}

std::exception_ptr NcclWatched::error_of_control() {
  const std::lock_guard lock(mutex_);
  if (control_ == nullptr) return nullptr;
  try {
    control_->check();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

std::exception_ptr NcclWatched::error_of_nccl() {
  ncclResult_t state = ncclSuccess;
  if (const std::unique_lock lock(calls_, std::try_to_lock); lock.owns_lock() && communicator_ != nullptr) {
    const ncclResult_t result = nccl.get_async_error(communicator_, &state);
    if (result != ncclSuccess) state = result;
    if (state != ncclSuccess && state != ncclInProgress) note(state);
  }
  const std::lock_guard lock(mutex_);
  if (nccl_error_.empty() || (of_the_network_ && since(error_at_) < limits_.reason)) return nullptr;
  return communication_error(nccl_error_);
}

std::exception_ptr NcclWatched::error_of_age() {
  const std::optional<Clock::time_point> oldest = operations.oldest();
  const std::lock_guard lock(mutex_);
  if (oldest != oldest_) {
    oldest_ = oldest;
    age_ = AwakeTime();
  }
  const AwakeTime::Duration age = age_.passed();
  if (!oldest || control_ == nullptr) return nullptr;
  if (!overdue_ && age > control_->deadline()) {
    overdue_.emplace();
    control_->overdue(operations.begun());
  }
  if (!overdue_ || overdue_->passed() < limits_.silence) return nullptr;
  return communication_error(fmt::format("NCCL: an operation has not ended for {} s, and no rank says why",
                                         std::chrono::duration_cast<std::chrono::seconds>(age).count()));
}

// The first error counts; those after it follow from it.
void NcclWatched::note(ncclResult_t result) {
  const std::lock_guard lock(mutex_);
  if (!nccl_error_.empty()) return;
  std::string detail = nccl.get_last_error(communicator_);
  std::replace(detail.begin(), detail.end(), '\n', ' ');
  nccl_error_ = fmt::format("NCCL: {}{}{}", nccl.get_error_string(result), detail.empty() ? "" : ": ", detail);
  of_the_network_ = result == ncclRemoteError || result == ncclSystemError;
  error_at_ = Clock::now();
}

void NcclWatched::throw_failure() {
  while (!failure.is_set()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  failure.check();
  std::terminate();  // the failure was set, so check() has thrown
}

void NcclWatched::abort() {
  {
    // The rank's thread may be in a call that does not return while the communicator lives.
    std::unique_lock lock(calls_, std::try_to_lock);
    for (const auto begun = Clock::now(); !lock.owns_lock() && since(begun) < limits_.farewell / 4;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      static_cast<void>(lock.try_lock());
    }
    ended_ = true;
  }
  if (communicator_ != nullptr) nccl.abort(communicator_);
}

void NcclWatched::end() {
  const auto begun = Clock::now();
  const std::unique_lock lock(calls_);
  ended_ = true;
  if (communicator_ == nullptr) return;
  ncclResult_t state = nccl.finalize(communicator_);
  while (state == ncclInProgress && since(begun) < limits_.farewell / 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (error_of_control()) break;
    if (nccl.get_async_error(communicator_, &state) != ncclSuccess) break;
  }
  // Freeing a communicator that has not ended would wait for it.
  static_cast<void>(state == ncclSuccess ? nccl.destroy(communicator_) : nccl.abort(communicator_));
}

void NcclWatched::done() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

bool NcclWatched::leave(bool in_good_order) {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  in_good_order_ = in_good_order;
  changed_.notify_all();
  changed_.wait_for(lock, limits_.farewell, [&] { return done_; });
  control_ = nullptr;
  return done_;
}

}  // namespace quire::cuda
