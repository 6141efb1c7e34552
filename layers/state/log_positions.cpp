#include "layers/state/log_positions.h"

#include <algorithm>
#include <utility>

#include "layers/state/state_tensors.h"

namespace quire {

namespace {

int64_t slots_of(const StateLayout::LogGroup& spec, int64_t segment) {
  if (spec.options.waits) return spec.length;
  if (spec.options.grain == 1) return spec.length + segment;
  // Entries that a step ends, of which the first may have begun before it.
  return spec.length + (segment + spec.options.grain - 1) / spec.options.grain + 1;
}

}  // namespace

LogPositions::LogPositions(const StateLayout::LogGroup& spec, int64_t rows, int64_t segment)
    : capacity(spec.length),
      slots(slots_of(spec, segment)),
      options(spec.options),
      head(at(rows), 0),
      length(at(rows), spec.options.filled_with_zeros ? spec.length : 0),
      written(at(rows), 0),
      taken(at(rows), -1),
      runs(at(rows)) {}

int64_t LogPositions::slot_of(int64_t row, int64_t entry) const {
  return (head[at(row)] - length[at(row)] + slots + entry) % slots;
}

void LogPositions::begin_document(int64_t row) {
  length[at(row)] = options.filled_with_zeros ? capacity : 0;
  written[at(row)] = 0;
  runs[at(row)].clear();
}

void LogPositions::clear_row(int64_t row) {
  head[at(row)] = 0;
  begin_document(row);
}

void LogPositions::queue_renewal(const Renewal& renewal) {
  if (std::find(renewals_.begin(), renewals_.end(), renewal) == renewals_.end()) renewals_.push_back(renewal);
}

void LogPositions::forget() {
  std::fill(taken.begin(), taken.end(), -1);
  renewals_.clear();
}

void LogPositions::renew(const std::vector<Segment>& last, int64_t clock) {
  for (const Renewal& renewal : std::exchange(renewals_, {})) {
    // A document that began meanwhile has none of these entries.
    if (options.ages && renewal.count > 0 && last[at(renewal.row)].carried) renew(renewal, clock);
  }
}

void LogPositions::renew(const Renewal& renewal, int64_t clock) {
  // There are the entries before, those renewed and those behind.
  std::vector<LogRun> renewed;
  const int64_t end = renewal.first + renewal.count;
  int64_t begin = 0;
  for (const LogRun& run : runs[at(renewal.row)]) {
    const int64_t before = std::clamp<int64_t>(renewal.first - begin, 0, run.count);
    const int64_t behind = std::clamp<int64_t>(begin + run.count - end, 0, run.count);
    const int64_t inside = run.count - before - behind;
    if (before > 0) renewed.push_back({run.step, before});
    if (inside > 0) {
      const bool joins = !renewed.empty() && renewed.back().step == clock;
      if (joins) renewed.back().count += inside;
      if (!joins) renewed.push_back({clock, inside});
    }
    if (behind > 0) renewed.push_back({run.step, behind});
    begin += run.count;
  }
  runs[at(renewal.row)] = std::move(renewed);
}

void LogPositions::advance(int64_t row, int64_t added, int64_t clock) {
  // Where appends wait, entries beyond the slots are not written at all.
  head[at(row)] = (head[at(row)] + (options.waits ? std::min(added, slots) : added)) % slots;
  length[at(row)] = std::min(capacity, length[at(row)] + added);
  written[at(row)] += added;
  const int64_t kept = std::min(added, capacity);
  std::vector<LogRun>& all = runs[at(row)];
  if (!options.ages || kept == 0) return;
  if (!all.empty() && all.back().step == clock) {
    all.back().count += kept;
  } else {
    all.push_back({clock, kept});
  }
  int64_t surplus = -capacity;
  for (const LogRun& run : all) surplus += run.count;
  while (surplus > 0) {
    const int64_t part = std::min(surplus, all.front().count);
    all.front().count -= part;
    surplus -= part;
    if (all.front().count == 0) all.erase(all.begin());
  }
}

}  // namespace quire
