// The state of some rows during one step (one micro-batch). Reads see what was committed; puts and appends become
// visible with the next commit. Row r of a view is row first_row + r of the pool.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/tensor.h"
#include "layers/state/state_rows.h"

namespace quire {

class StateView {
 public:
  StateView(StateRows& rows, int64_t begin, int64_t end) : state_(&rows), begin_(begin), end_(end) {}

  int64_t rows() const { return end_ - begin_; }
  Device device() const { return state_->device; }
  DType dtype() const { return state_->dtype; }  // of what the model computes
  // Returns a view of the rows [begin, end) of this view.
  StateView block(int64_t begin, int64_t end) const { return {*state_, begin_ + begin, begin_ + end}; }

  // The S segments of these rows, in the order of rows; Segment::row counts from the view's first row.
  std::vector<Segment> segments() const;
  // The segment whose state the row keeps; for a row without tokens a segment without tokens.
  Segment last_segment(int64_t row) const;

  // Registers, by row or by segment.
  Tensor current(RegisterId id) const;                 // [R, ...]
  Tensor initial(RegisterId id) const;                 // [S, ...]: what each segment begins with; zeros when empty
  std::vector<uint8_t> is_empty(RegisterId id) const;  // [S]: 1 where a segment begins with nothing
  // Rows that write nothing this step keep what they have. So do rows that are 0 in written, unless a document began
  // inside them: they are empty then.
  void put(RegisterId id, const Tensor& next, std::span<const uint8_t> written = {}) const;
  // values [S, ...]: what each segment leaves, of which the rows keep the last.
  void put_by_segment(RegisterId id, const Tensor& values) const;

  // Describe a group of logs, by row or by segment.
  LogPlace place(LogGroupId id) const { return positions(id).options.place; }
  int64_t capacity(LogGroupId id) const;                      // the largest number of entries of a row that can be read
  std::vector<int64_t> lengths(LogGroupId id) const;          // [R]: entries that can be read
  std::vector<int64_t> initial_lengths(LogGroupId id) const;  // [S]: of those, what each segment begins with
  Tensor ring_head(LogGroupId id) const;                      // i32 [R]: the slot of the next entry
  int64_t written(LogGroupId id, int64_t row) const;          // entries of the row's document so far
  // For groups with ages: returns the commits since each entry of a row was made, 1 for those of the last step, as runs
  // from the oldest entry on; and how many of the newest entries are at most `commits` old.
  std::vector<LogRun> ages(LogGroupId id, int64_t row) const;
  int64_t entries_within(LogGroupId id, int64_t row, int64_t commits) const;

  Tensor ring(LogId id) const;         // [R, C, ...], a copy when stored in another type
  Tensor stored_ring(LogId id) const;  // as it is stored
  // [R, M, ...]: the readable entries, newest last, zeros before them.
  Tensor gather(LogId id) const;
  // [R, N, ...], as stored: entries first[r], ..., first[r] + count[r] - 1 from the oldest, the last one at the end.
  Tensor gather(LogId id, int64_t entries, std::span<const int64_t> first, std::span<const int64_t> count) const;

  // All logs of a group must be given equally many entries. values [R, T, ...] of a log of tokens: those of each row's
  // last segment.
  void append(LogId id, const Tensor& values) const;
  // values [R, N, ...]: count[r] entries of row r from first[r] on, `stride` apart.
  void append(LogId id, const Tensor& values, std::span<const int64_t> first, std::span<const int64_t> count,
              int64_t stride = 1) const;
  // For logs that wait: at the commit the last count[r] of values [R, N, ...] replace the entries first[r], ...,
  // first[r] + count[r] - 1, counted from the oldest readable one, and count as made in this step. Nothing is replaced
  // in rows that begin a document meanwhile.
  void replace(LogId id, const Tensor& values, std::span<const int64_t> first, std::span<const int64_t> count) const;
  // Releases the main memory that reading this view's part of a log in a file has taken.
  void forget_pages(LogId id) const;

  // Returns what a mechanism derived from a row's state, which is cleared when that state is gone.
  template <typename T>
  T& derived(DerivedId<T> id, int64_t row) const {
    // The id was made together with the factory of this type.
    return static_cast<T&>(derived_state(id.index, row));
  }

 private:
  DerivedState& derived_state(int index, int64_t row) const;
  Tensor per_row(const std::function<int64_t(int64_t)>& value) const;
  const LogPositions& positions(LogGroupId id) const { return state_->groups[static_cast<size_t>(id.index)]; }
  StateLog& log(LogId id) const { return state_->logs[static_cast<size_t>(id.index)]; }

  StateRows* state_;
  int64_t begin_;
  int64_t end_;
};

}  // namespace quire
