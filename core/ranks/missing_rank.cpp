#include "core/ranks/missing_rank.h"

#include "core/check.h"

namespace quire {

namespace {

std::string awaited(const RankActivity& absent, const RankActivity& here) {
  return describe({absent.rank, absent.host, here.step, here.operation});
}

}  // namespace

std::string ended_while_awaited(const RankActivity& absent, const RankActivity& here) {
  return fmt::format("{}: it ended while others wait for it", awaited(absent, here));
}

std::string does_not_answer(const RankActivity& absent, const RankActivity& here, std::chrono::milliseconds deadline) {
  return fmt::format("{}: it does not answer since {:.3g} s (run.rank_timeout); what it said last: {}",
                     awaited(absent, here), static_cast<double>(deadline.count()) / 1000, describe(absent));
}

std::string gone(const RankActivity& absent) {
  return fmt::format(
      "{}: its process is gone without a word; it was killed, which happens when memory runs out, or "
      "crashed (see the kernel's log of {})",
      describe(absent), absent.host);
}

}  // namespace quire
