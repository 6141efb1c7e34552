#include "core/progress.h"

#include <algorithm>
#include <atomic>

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<Clock::rep> last_progress{0};  // 0: none

}  // namespace

void note_progress() {
  last_progress.store(std::max<Clock::rep>(1, Clock::now().time_since_epoch().count()), std::memory_order_relaxed);
}

std::optional<std::chrono::milliseconds> since_progress() {
  const Clock::rep last = last_progress.load(std::memory_order_relaxed);
  if (last == 0) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - Clock::time_point(Clock::duration(last)));
}

}  // namespace quire
