// Chosen entries of logs, where kernels read them fast. What lies in host memory is copied to the device, each chosen
// entry once, while the device goes on with other work; what lies on the device is read there.
#pragma once

#include <initializer_list>
#include <vector>

#include "layers/state/state_view.h"

namespace quire {

struct FetchedEntries {
  std::vector<Tensor> logs;  // [N, ...] each, as they are stored
  Tensor slot;               // i32 [R, ...]: where the chosen entries stand in them; -1: none
};

// chosen i32 [R, ...]: entries by slot, of C slots row r has those from r C on; -1: none. All logs have as many slots.
// Kernels that read the result are queued after await_fetched.
FetchedEntries fetch_entries(const StateView& state, std::initializer_list<LogId> logs, const Tensor& chosen);
void await_fetched(Device device);

}  // namespace quire
