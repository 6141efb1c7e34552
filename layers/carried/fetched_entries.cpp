#include "layers/carried/fetched_entries.h"

#include <algorithm>

#include "kernels/planned_scratch.h"
#include "layers/carried/carried_blocks.h"

namespace quire {

namespace {

Tensor all_slots(const Tensor& ring) {
  Shape shape(std::span(ring.shape().begin() + 1, ring.shape().end()));
  shape[0] *= ring.dim(0);
  return ring.reshape(shape);
}

// Copies entries, neighbours together. `requested` is in ascending order.
void copy_entries(std::vector<DeviceBackend::Copy>& copies, const Tensor& to, const Tensor& from,
                  const std::vector<int32_t>& requested) {
  const int64_t entry = from.numel() / from.dim(0) * static_cast<int64_t>(size_of(from.dtype()));
  for (size_t i = 0; i < requested.size(); ++i) {
    if (i > 0 && requested[i] == requested[i - 1] + 1) {
      copies.back().bytes += static_cast<size_t>(entry);
      continue;
    }
    copies.push_back({static_cast<char*>(to.raw()) + static_cast<int64_t>(i) * entry,
                      static_cast<const char*>(from.raw()) + requested[i] * entry, static_cast<size_t>(entry)});
  }
}

}  // namespace

FetchedEntries fetch_entries(const StateView& state, std::initializer_list<LogId> logs, const Tensor& chosen) {
  FetchedEntries fetched;
  for (const LogId log : logs) fetched.logs.push_back(all_slots(state.stored_ring(log)));
  fetched.slot = chosen;
  const bool is_plan = state.device() == kMeta;
  const DeviceKind kind = is_plan ? planned_device() : state.device().kind;
  if (state.place(logs.begin()->group) == LogPlace::device || kind != DeviceKind::cuda) return fetched;
  const int64_t slots_of_rows = fetched.logs.front().dim(0);
  const auto make_room = [&](int64_t entries) {
    for (Tensor& log : fetched.logs) {
      Shape shape = log.shape();
      shape[0] = entries;
      log = Tensor::empty(shape, log.dtype(), state.device());
    }
  };
  if (is_plan) {
    make_room(std::min(chosen.numel(), slots_of_rows));
    return fetched;
  }
  std::vector<int32_t> slots = chosen.to_vector<int32_t>();
  std::vector<int32_t> number(static_cast<size_t>(slots_of_rows), -1), requested;
  for (const int32_t slot : slots) {
    if (slot >= 0) number[static_cast<size_t>(slot)] = 0;
  }
  for (size_t slot = 0; slot < number.size(); ++slot) {
    if (number[slot] < 0) continue;
    number[slot] = static_cast<int32_t>(requested.size());
    requested.push_back(static_cast<int32_t>(slot));
  }
  for (int32_t& slot : slots) slot = slot < 0 ? slot : number[static_cast<size_t>(slot)];
  fetched.slot = Tensor::from(slots, chosen.shape(), state.device());
  const std::vector<Tensor> stored = fetched.logs;
  make_room(std::max<int64_t>(1, with_places_to_spare(static_cast<int64_t>(requested.size()))));
  std::vector<DeviceBackend::Copy> copies;
  for (size_t i = 0; i < stored.size(); ++i) copy_entries(copies, fetched.logs[i], stored[i], requested);
  device_backend(state.device().kind).fetch(copies);
  return fetched;
}

void await_fetched(Device device) {
  device_backend(device.kind).await_fetched();
}

}  // namespace quire
