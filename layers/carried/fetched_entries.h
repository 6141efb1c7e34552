// Chosen entries of logs, where kernels read them fast. What lies in host memory is copied to the device, each chosen
// entry once, while the device goes on with other work; what lies on the device is read there.
#pragma once

#include <initializer_list>
#include <vector>

#include "kernels/listed_attention.h"
#include "layers/carried/vector_log.h"

namespace quire {

struct FetchedEntries {
  std::vector<Tensor> logs;    // [N, ...] each, as they are stored
  std::vector<Tensor> scales;  // of each log; undefined where vectors have none
  Tensor slot;                 // i32 [R, ...]: where the chosen entries stand in them; -1: none

  // Sets the stored blocks of a call, from the logs of their keys and values.
  void give_blocks(ops::ListedAttentionInputs& to) const;
};

// Says in which numbers entries are returned.
enum class FetchAs { stored, computed };

// chosen i32 [R, ...]: entries by slot, of C slots row r has those from r C on; -1: none. All logs have as many slots,
// and all have scales or none has. Kernels that read the result are queued after await_fetched.
//
// Vectors of other types than bf16 and the one that the model computes in come in the latter, without scales and each
// chosen entry once, where `as` asks for that type, and on a GPU, which waits for their copies.
FetchedEntries fetch_entries(const StateView& state, std::initializer_list<VectorLog> logs, const Tensor& chosen,
                             FetchAs as = FetchAs::stored);
void await_fetched(Device device);

}  // namespace quire
