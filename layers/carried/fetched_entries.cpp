#include "layers/carried/fetched_entries.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/knn.h"
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

// Replaces tensors of all slots by room for entries; undefined ones stay.
void make_room(std::vector<Tensor>& of_slots, int64_t entries) {
  for (Tensor& tensor : of_slots) {
    if (!tensor.defined()) continue;
    Shape shape = tensor.shape();
    shape[0] = entries;
    tensor = Tensor::empty(shape, tensor.dtype(), tensor.device());
  }
}

// Copies the chosen entries of all logs, each once.
void copy_chosen(FetchedEntries& fetched, const Tensor& chosen) {
  const int64_t slots_of_rows = fetched.logs.front().dim(0);
  if (chosen.device() == kMeta) {
    for (std::vector<Tensor>* all : {&fetched.logs, &fetched.scales}) {
      make_room(*all, std::min(chosen.numel(), slots_of_rows));
    }
    return;
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
  fetched.slot = Tensor::from(slots, chosen.shape(), chosen.device());
  std::vector<DeviceBackend::Copy> copies;
  for (std::vector<Tensor>* all : {&fetched.logs, &fetched.scales}) {
    const std::vector<Tensor> stored = *all;
    make_room(*all, std::max<int64_t>(1, with_places_to_spare(static_cast<int64_t>(requested.size()))));
    for (size_t i = 0; i < stored.size(); ++i) {
      if (stored[i].defined()) copy_entries(copies, (*all)[i], stored[i], requested);
    }
  }
  device_backend(chosen.device().kind).fetch(copies);
}

}  // namespace

void FetchedEntries::give_blocks(ops::ListedAttentionInputs& to) const {
  to.keys = logs[0], to.values = logs[1];
  to.key_scale = scales[0], to.value_scale = scales[1];
}

FetchedEntries fetch_entries(const StateView& state, std::initializer_list<VectorLog> logs, const Tensor& chosen,
                             FetchAs as) {
  FetchedEntries fetched;
  for (const VectorLog& log : logs) {
    fetched.logs.push_back(all_slots(state.stored_ring(log.log)));
    fetched.scales.push_back(log.scale.defined() ? all_slots(state.stored_ring(log.scale)) : Tensor());
  }
  fetched.slot = chosen;
  const DeviceKind kind = state.device() == kMeta ? planned_device() : state.device().kind;
  const bool on_gpu = kind == DeviceKind::cuda;
  const DType stored_type = fetched.logs.front().dtype();
  const bool converts =
      stored_type != state.dtype() && stored_type != DType::bf16 && (on_gpu || as == FetchAs::computed);
  if (converts || (on_gpu && state.place(logs.begin()->log.group) != LogPlace::device)) copy_chosen(fetched, chosen);
  if (!converts) return fetched;
  await_fetched(state.device());
  for (size_t i = 0; i < fetched.logs.size(); ++i) {
    const Tensor stored = fetched.logs[i];
    fetched.logs[i] = Tensor::empty(stored.shape(), state.dtype(), state.device());
    if (const Tensor scale = std::exchange(fetched.scales[i], Tensor()); scale.defined()) {
      ops::dequantize_vectors(fetched.logs[i], stored, scale);
    } else {
      ops::convert(fetched.logs[i], stored);
    }
  }
  return fetched;
}

void await_fetched(Device device) {
  device_backend(device.kind).await_fetched();
}

}  // namespace quire
