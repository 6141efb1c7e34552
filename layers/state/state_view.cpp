#include "layers/state/state_view.h"

#include <algorithm>

#include "core/check.h"
#include "core/files/file.h"
#include "kernels/state.h"
#include "layers/state/state_tensors.h"

namespace quire {

std::vector<Segment> StateView::segments() const {
  QUIRE_CHECK(!state_->first_segment.empty(), "state: read before the first step began");
  const auto all = state_->segments.begin();
  std::vector<Segment> segments(all + static_cast<int64_t>(state_->first_segment[at(begin_)]),
                                all + static_cast<int64_t>(state_->first_segment[at(end_)]));
  for (Segment& segment : segments) segment.row -= begin_;
  return segments;
}

Segment StateView::last_segment(int64_t row) const {
  Segment segment = state_->last.at(at(begin_ + row));
  segment.row = row;
  return segment;
}

Tensor StateView::per_row(const std::function<int64_t(int64_t)>& value) const {
  std::vector<int32_t> values;
  for (int64_t row = begin_; row < end_; ++row) values.push_back(static_cast<int32_t>(value(row)));
  return Tensor::from(values, {rows()}, state_->device);
}

Tensor StateView::current(RegisterId id) const {
  return state_->registers[at(id.index)].current.slice(0, begin_, end_);
}

Tensor StateView::initial(RegisterId id) const {
  const std::vector<Segment> all = segments();
  const Tensor of_rows = current(id);
  // The common case: every row goes on with its document.
  const bool by_row = static_cast<int64_t>(all.size()) == rows() &&
                      std::all_of(all.begin(), all.end(), [](const Segment& segment) { return segment.carried; });
  if (by_row) return of_rows;
  const Shape& shape = state_->layout.registers()[at(id.index)].shape;
  const Tensor initial =
      Tensor::zeros(with_leading({static_cast<int64_t>(all.size())}, shape), of_rows.dtype(), state_->device);
  for (int64_t s = 0; s < initial.dim(0); ++s) {
    const Segment& segment = all[at(s)];
    if (segment.carried) initial.select(0, s).copy_from(of_rows.select(0, segment.row));
  }
  return initial;
}

std::vector<uint8_t> StateView::is_empty(RegisterId id) const {
  std::vector<uint8_t> empty;
  for (const Segment& segment : segments()) {
    empty.push_back(segment.carried ? state_->registers[at(id.index)].empty[at(begin_ + segment.row)] : 1);
  }
  return empty;
}

void StateView::put(RegisterId id, const Tensor& next, std::span<const uint8_t> written) const {
  StateRegister& data = state_->registers[at(id.index)];
  data.next.slice(0, begin_, end_).copy_from(next);
  for (int64_t row = begin_; row < end_; ++row) data.put(row, written.empty() || written[at(row - begin_)] != 0);
}

void StateView::put_by_segment(RegisterId id, const Tensor& values) const {
  StateRegister& data = state_->registers[at(id.index)];
  const std::vector<Segment> all = segments();
  for (size_t s = 0; s < all.size(); ++s) {
    if (!all[s].last) continue;
    const int64_t row = begin_ + all[s].row;
    data.next.select(0, row).copy_from(values.select(0, static_cast<int64_t>(s)));
    data.put(row, true);
  }
}

int64_t StateView::capacity(LogGroupId id) const {
  return positions(id).capacity;
}

std::vector<int64_t> StateView::lengths(LogGroupId id) const {
  const std::vector<int64_t>& all = positions(id).length;
  return {all.begin() + begin_, all.begin() + end_};
}

std::vector<int64_t> StateView::initial_lengths(LogGroupId id) const {
  std::vector<int64_t> lengths;
  for (const Segment& segment : segments()) {
    lengths.push_back(segment.carried ? positions(id).length[at(begin_ + segment.row)] : 0);
  }
  return lengths;
}

Tensor StateView::ring_head(LogGroupId id) const {
  return per_row([&](int64_t row) { return positions(id).head[at(row)]; });
}

int64_t StateView::written(LogGroupId id, int64_t row) const {
  return positions(id).written[at(begin_ + row)];
}

std::vector<LogRun> StateView::ages(LogGroupId id, int64_t row) const {
  std::vector<LogRun> runs = positions(id).runs[at(begin_ + row)];
  for (LogRun& run : runs) run.step = state_->clock + 1 - run.step;
  return runs;
}

int64_t StateView::entries_within(LogGroupId id, int64_t row, int64_t commits) const {
  int64_t entries = 0;
  for (const LogRun& run : ages(id, row)) {
    // Renewed entries are not in the order of their ages: the newest ones are those behind the last older one.
    entries = run.step <= commits ? entries + run.count : 0;
  }
  return entries;
}

Tensor StateView::stored_ring(LogId id) const {
  return log(id).ring().slice(0, begin_, end_);
}

Tensor StateView::ring(LogId id) const {
  return as_type(stored_ring(id), state_->dtype);
}

Tensor StateView::gather(LogId id) const {
  const Tensor ring = stored_ring(id);
  const Shape& entry = state_->layout.logs()[at(id.index)].entry;
  const Tensor out =
      Tensor::empty(with_leading({rows(), positions(id.group).capacity}, entry), ring.dtype(), state_->device);
  const Tensor length = per_row([&](int64_t row) { return positions(id.group).length[at(row)]; });
  ops::ring_gather(out, ring, ring_head(id.group), length);
  return as_type(out, state_->dtype);
}

Tensor StateView::gather(LogId id, int64_t entries, std::span<const int64_t> first,
                         std::span<const int64_t> count) const {
  const Tensor ring = stored_ring(id);
  const Shape& entry = state_->layout.logs()[at(id.index)].entry;
  const Tensor out = Tensor::empty(with_leading({rows(), entries}, entry), ring.dtype(), state_->device);
  const Tensor end = per_row(
      [&](int64_t row) { return positions(id.group).slot_of(row, first[at(row - begin_)] + count[at(row - begin_)]); });
  ops::ring_gather(out, ring, end, per_row([&](int64_t row) { return count[at(row - begin_)]; }));
  return out;
}

void StateView::append(LogId id, const Tensor& values) const {
  QUIRE_CHECK(positions(id.group).options.grain == 1, "state {}: say which of its blocks or chunks each row adds",
              state_->layout.logs()[at(id.index)].name);
  std::vector<int64_t> first, count;
  for (int64_t row = 0; row < rows(); ++row) {
    first.push_back(last_segment(row).begin);
    count.push_back(last_segment(row).count);
  }
  append(id, values, first, count);
}

void StateView::append(LogId id, const Tensor& values, std::span<const int64_t> first, std::span<const int64_t> count,
                       int64_t stride) const {
  LogPositions& of_group = state_->groups[at(id.group.index)];
  for (int64_t row = begin_; row < end_; ++row) {
    const int64_t added = count[at(row - begin_)];
    QUIRE_CHECK(of_group.options.waits || added <= of_group.slots - of_group.capacity,
                "state {}: {} entries in one step, and the log has room for {}",
                state_->layout.logs()[at(id.index)].name, added, of_group.slots - of_group.capacity);
    of_group.taken[at(row)] = added;
  }
  log(id).append({.row_begin = begin_,
                  .values = as_type(values, log(id).ring().dtype()),
                  .from = {first.begin(), first.end()},
                  .count = {count.begin(), count.end()},
                  .stride = stride},
                 of_group);
}

void StateView::replace(LogId id, const Tensor& values, std::span<const int64_t> first,
                        std::span<const int64_t> count) const {
  LogPositions& of_group = state_->groups[at(id.group.index)];
  QUIRE_CHECK(of_group.options.waits, "state: replacing entries of a log that does not wait");
  std::vector<int64_t> from;
  for (const int64_t n : count) from.push_back(values.dim(1) - n);
  for (int64_t row = begin_; row < end_; ++row) {
    of_group.queue_renewal({row, first[at(row - begin_)], count[at(row - begin_)]});
  }
  log(id).replace({.row_begin = begin_,
                   .values = as_type(values, log(id).ring().dtype()),
                   .from = std::move(from),
                   .count = {count.begin(), count.end()},
                   .to = {first.begin(), first.end()}});
}

DerivedState& StateView::derived_state(int index, int64_t row) const {
  std::unique_ptr<DerivedState>& derived = state_->derived[at(index)][at(begin_ + row)];
  if (!derived) derived = state_->layout.derived()[at(index)]();
  return *derived;
}

void StateView::forget_pages(LogId id) const {
  if (positions(id.group).options.place != LogPlace::file || !(state_->device == kCpu)) return;
  const Tensor ring = stored_ring(id);
  quire::forget_pages(ring.raw(), static_cast<size_t>(ring.bytes()));
}

}  // namespace quire
