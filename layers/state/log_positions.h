// Says where the entries of a group of logs stand in their rings, by row. All logs of a group move together, so this is
// kept and saved once for them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/batch.h"
#include "layers/state/state_layout.h"

namespace quire {

// Consecutive entries of a log that were made in one step; `step` counts commits.
struct LogRun {
  int64_t step;
  int64_t count;
};

struct LogPositions {
  // `segment` is T, the largest number of tokens of a step.
  LogPositions(const StateLayout::LogGroup& spec, int64_t rows, int64_t segment);

  // Returns the slot of an entry, which is counted from the oldest one that can be read.
  int64_t slot_of(int64_t row, int64_t entry) const;
  // Afterwards no earlier entry can be read; head stays where it is.
  void begin_document(int64_t row);
  // Also moves the head back to slot 0: the slot where a document's entries wrap decides how sums over them are
  // grouped, and so the last bits of its logits.
  void clear_row(int64_t row);
  // Entries of a row, counted from the oldest one, that the step replaces. All logs of a group replace the same ones.
  struct Renewal {
    int64_t row, first, count;
    bool operator==(const Renewal&) const = default;
  };
  void queue_renewal(const Renewal& renewal);
  // Forgets what a failed step has queued.
  void forget();
  // At the commit: queued entries count as made in the step `clock`. last: the segment that a row's state comes from.
  void renew(const std::vector<Segment>& last, int64_t clock);
  // At the commit: adds the entries that were appended in the step `clock`.
  void advance(int64_t row, int64_t added, int64_t clock);

  int64_t capacity;  // entries that can be read
  int64_t slots;     // of the ring
  LogGroupOptions options;
  std::vector<int64_t> head;              // the slot of the next entry
  std::vector<int64_t> length;            // entries that can be read
  std::vector<int64_t> written;           // entries of the row's document so far
  std::vector<int64_t> taken;             // entries that this step appends; -1: append was not called
  std::vector<std::vector<LogRun>> runs;  // oldest first; with ages

 private:
  void renew(const Renewal& renewal, int64_t clock);

  std::vector<Renewal> renewals_;  // of this step
};

}  // namespace quire
