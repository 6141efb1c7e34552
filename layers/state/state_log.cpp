#include "layers/state/state_log.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/files/file.h"
#include "kernels/state.h"
#include "layers/state/state_tensors.h"

namespace quire {

namespace {

Tensor make_ring(const std::string& name, const Shape& shape, DType dtype, LogPlace place, Device device,
                 const std::filesystem::path& scratch) {
  if (place == LogPlace::device || device.kind == DeviceKind::meta) return Tensor::zeros(shape, dtype, device);
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  if (place == LogPlace::file) {
    if (!(device == kCpu)) {
      fail(ErrorKind::config, "{}: {}", name, kNoFilesOnGpu);
    }
    const std::filesystem::path folder = scratch.empty() ? std::filesystem::temp_directory_path() : scratch;
    return Tensor::over(map_scratch_file(folder, bytes), shape, dtype, device);
  }
  Allocator& allocator = device_backend(device.kind).host_allocator();
  const std::shared_ptr<void> memory(allocator.allocate(bytes),
                                     [&allocator, bytes](void* block) { allocator.deallocate(block, bytes); });
  // On the device: kernels that were queued may still use what was here before.
  const Tensor ring = Tensor::over(memory, shape, dtype, device);
  ring.zero();
  return ring;
}

}  // namespace

StateLog::StateLog(const StateLayout::Log& spec, const LogPositions& positions, int64_t rows, DType pool_type,
                   Device device, const std::filesystem::path& scratch)
    : taken(at(rows), -1),
      ring_(make_ring(spec.name, with_leading({rows, positions.slots}, spec.entry), spec.dtype.value_or(pool_type),
                      positions.options.place, device, scratch)) {}

void StateLog::write(const Entries& entries, const std::vector<int32_t>& slot, const std::vector<int32_t>& from,
                     const std::vector<int32_t>& count) const {
  const auto rows = static_cast<int64_t>(slot.size());
  const auto upload = [&](const std::vector<int32_t>& values) { return Tensor::from(values, {rows}, ring_.device()); };
  ops::ring_append(ring_.slice(0, entries.row_begin, entries.row_begin + rows), entries.values, upload(slot),
                   upload(from), upload(count), entries.stride);
}

void StateLog::append(Entries entries, const LogPositions& positions) {
  std::copy(entries.count.begin(), entries.count.end(), taken.begin() + entries.row_begin);
  appends_.push_back(std::move(entries));
  if (!positions.options.waits) write_appends(positions);
}

void StateLog::forget() {
  std::fill(taken.begin(), taken.end(), -1);
  appends_.clear();
  replacements_.clear();
}

void StateLog::write_replacements(const LogPositions& positions, const std::vector<Segment>& last) {
  for (const Entries& entries : std::exchange(replacements_, {})) {
    std::vector<int32_t> slot, from, count;
    for (size_t r = 0; r < entries.count.size(); ++r) {
      const int64_t row = entries.row_begin + static_cast<int64_t>(r);
      slot.push_back(static_cast<int32_t>(positions.slot_of(row, entries.to[r])));
      from.push_back(static_cast<int32_t>(entries.from[r]));
      // A document that began meanwhile has none of them.
      count.push_back(static_cast<int32_t>(last[at(row)].carried ? entries.count[r] : 0));
    }
    write(entries, slot, from, count);
  }
}

void StateLog::begin_document(const LogPositions& positions, int64_t row) const {
  // The readable slots only: those behind the head may hold what this step appended.
  const int64_t length = positions.length[at(row)];
  if (length == 0) return;
  const Tensor slots = ring_.select(0, row);
  const int64_t first = positions.slot_of(row, 0);
  const int64_t end = std::min(first + length, positions.slots);
  slots.slice(0, first, end).zero();
  slots.slice(0, 0, length - (end - first)).zero();
}

void StateLog::write_appends(const LogPositions& positions) {
  for (const Entries& entries : std::exchange(appends_, {})) {
    std::vector<int32_t> slot, from, count;
    for (size_t r = 0; r < entries.count.size(); ++r) {
      const int64_t row = entries.row_begin + static_cast<int64_t>(r);
      // If there are more entries than slots, the last ones are written.
      const int64_t written = std::min(entries.count[r], positions.slots);
      slot.push_back(static_cast<int32_t>(positions.head[at(row)]));
      from.push_back(static_cast<int32_t>(entries.from[r] + (entries.count[r] - written) * entries.stride));
      count.push_back(static_cast<int32_t>(written));
    }
    write(entries, slot, from, count);
  }
}

}  // namespace quire
