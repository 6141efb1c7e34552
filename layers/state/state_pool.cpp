#include "layers/state/state_pool.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/files/file.h"
#include "kernels/backend.h"
#include "layers/state/state_tensors.h"

namespace quire {

namespace {

// Returns the bytes that one row has in a place.
int64_t row_bytes(const StateRows& state, LogPlace place) {
  const auto bytes = [](const Shape& shape, DType dtype) {
    return shape.numel() * static_cast<int64_t>(size_of(dtype));
  };
  int64_t total = 0;
  for (const StateLayout::Register& spec : state.layout.registers()) {
    if (place == LogPlace::device) total += 2 * bytes(spec.shape, StateRegister::type(spec, state.dtype));
  }
  for (const StateLayout::Log& spec : state.layout.logs()) {
    const LogPositions& positions = state.groups[at(spec.group.index)];
    if (positions.options.place != place) continue;
    total += positions.slots * bytes(spec.entry, spec.dtype.value_or(state.dtype));
  }
  return total;
}

void require_memory(int64_t rows, int64_t row_bytes, DeviceKind device) {
  const int64_t memory = device_backend(device).memory().total;
  if (memory == 0 || row_bytes <= memory / std::max<int64_t>(rows, 1)) return;  // a rank may have no rows
  const auto gigabytes = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-9; };
  fail(ErrorKind::memory, "{} rows that carry {:.3g} GB each do not fit into {:.3g} GB of {}: use {}", rows,
       gigabytes(row_bytes), gigabytes(memory), device == DeviceKind::cuda ? "the GPU" : "main memory",
       row_bytes > memory ? std::string("shorter caches and memories")
                          : fmt::format("at most {} (data.rows, evaluate.rows, or --rows of quire serve), or shorter "
                                        "caches and memories",
                                        memory / row_bytes));
}

// Main memory that is missing is found to be so when it is written, and then the system ends the program.
void require_memory(const StateRows& state) {
  const int64_t on_device = row_bytes(state, LogPlace::device);
  const int64_t on_host = row_bytes(state, LogPlace::host);
  const bool apart = state.device.kind == DeviceKind::cuda;
  require_memory(state.rows, apart ? on_device : on_device + on_host, state.device.kind);
  if (apart) require_memory(state.rows, on_host, DeviceKind::cpu);
}

}  // namespace

StatePool::StatePool(StateLayout layout, int64_t rows, int64_t segment, DType dtype, Device device,
                     const std::filesystem::path& scratch) {
  state_.layout = std::move(layout);
  state_.rows = rows;
  state_.segment = segment;
  state_.dtype = dtype;
  state_.device = device;
  for (const StateLayout::LogGroup& spec : state_.layout.log_groups()) state_.groups.emplace_back(spec, rows, segment);
  require_memory(state_);
  for (const StateLayout::Register& spec : state_.layout.registers()) {
    state_.registers.emplace_back(spec, rows, dtype, device);
  }
  for (const StateLayout::Log& spec : state_.layout.logs()) {
    state_.logs.emplace_back(spec, state_.groups[at(spec.group.index)], rows, dtype, device, scratch);
  }
  for (size_t i = 0; i < state_.layout.derived().size(); ++i) state_.derived.emplace_back(at(rows));
}

int64_t StatePool::bytes(LogPlace place) const {
  int64_t total = 0;
  if (place == LogPlace::device) {
    for (const StateRegister& data : state_.registers) total += data.current.bytes() + data.next.bytes();
  }
  for (size_t i = 0; i < state_.logs.size(); ++i) {
    const LogGroupId group = state_.layout.logs()[i].group;
    if (state_.groups[at(group.index)].options.place == place) total += state_.logs[i].ring().bytes();
  }
  return total;
}

void StatePool::clear_row(int64_t row) {
  for (StateRegister& data : state_.registers) data.clear_row(row);
  for (LogPositions& positions : state_.groups) positions.clear_row(row);
  for (size_t i = 0; i < state_.logs.size(); ++i) {
    state_.logs[i].begin_document(state_.groups[at(state_.layout.logs()[i].group.index)], row);
  }
  clear_derived(state_, row);
}

void StatePool::begin_step(const Batch& batch) {
  QUIRE_CHECK(batch.rows == state_.rows, "state: a batch of {} rows for a pool of {}; rows never change during a run",
              batch.rows, state_.rows);
  QUIRE_CHECK(batch.length <= state_.segment, "state: a batch of {} positions for a pool of {}", batch.length,
              state_.segment);
  state_.segments = segments_of(batch);
  state_.first_segment.assign(at(state_.rows) + 1, state_.segments.size());
  state_.last.clear();
  for (int64_t row = 0; row < state_.rows; ++row) state_.last.push_back({.row = row, .carried = true});
  for (size_t i = state_.segments.size(); i-- > 0;) {
    const Segment& segment = state_.segments[i];
    state_.first_segment[at(segment.row)] = i;
    if (segment.last) state_.last[at(segment.row)] = segment;
  }
  // A row without tokens begins where the next one does.
  for (int64_t row = state_.rows; row-- > 0;) {
    if (state_.last[at(row)].count == 0) state_.first_segment[at(row)] = state_.first_segment[at(row) + 1];
  }
  for (StateRegister& data : state_.registers) data.forget();
  for (LogPositions& positions : state_.groups) positions.forget();
  for (StateLog& log : state_.logs) log.forget();
  for (int64_t row = 0; row < state_.rows; ++row) {
    if (batch.starts[at(row)] != 0) clear_row(row);
  }
}

void StatePool::commit_group(size_t group) {
  LogPositions& positions = state_.groups[group];
  std::vector<StateLog*> logs;
  for (size_t i = 0; i < state_.logs.size(); ++i) {
    if (at(state_.layout.logs()[i].group.index) != group) continue;
    logs.push_back(&state_.logs[i]);
    QUIRE_CHECK(logs.back()->taken == positions.taken, "state {}: a log of its group was given other entries",
                state_.layout.logs()[i].name);
  }
  for (StateLog* log : logs) log->write_replacements(positions, state_.last);
  positions.renew(state_.last, state_.clock);
  for (const Segment& segment : state_.last) {
    if (positions.taken[at(segment.row)] < 0 || segment.count == 0 || segment.carried) continue;
    positions.begin_document(segment.row);
    for (const StateLog* log : logs) log->begin_document(positions, segment.row);
  }
  for (StateLog* log : logs) log->write_appends(positions);
  for (const Segment& segment : state_.last) {
    const int64_t taken = positions.taken[at(segment.row)];
    if (taken > 0 && segment.count > 0) positions.advance(segment.row, taken, state_.clock);
  }
  positions.forget();
  for (StateLog* log : logs) {
    log->forget();
    // The next step reads these pages from the file again.
    if (positions.options.place == LogPlace::file && state_.device == kCpu) {
      quire::forget_pages(log->ring().raw(), static_cast<size_t>(log->ring().bytes()));
    }
  }
}

void StatePool::assume_read(int64_t positions) {
  for (LogPositions& group : state_.groups) {
    for (int64_t row = 0; row < state_.rows; ++row) {
      const int64_t added = positions / group.options.grain - group.written[at(row)];
      if (added > 0) group.advance(row, added, state_.clock);
    }
  }
}

void StatePool::commit(std::span<const uint8_t> cleared) {
  ++state_.clock;
  for (StateRegister& data : state_.registers) data.commit(state_.last);
  for (size_t group = 0; group < state_.groups.size(); ++group) commit_group(group);
  for (const Segment& segment : state_.last) {
    if (!segment.carried) clear_derived(state_, segment.row);
  }
  for (size_t row = 0; row < cleared.size(); ++row) {
    if (cleared[row] == 0) continue;
    clear_row(static_cast<int64_t>(row));
    // Slots that cannot be read may still be multiplied by a probability of zero, which NaN survives.
    for (const StateLog& log : state_.logs) log.ring().select(0, static_cast<int64_t>(row)).zero();
  }
}

}  // namespace quire
