// Makes chosen entries of logs readable by kernels. Entries in host memory are copied to the device, each chosen one
// once, while the device goes on with other work; entries on the device are read where they lie.
#pragma once

#include <initializer_list>
#include <vector>

#include "kernels/listed_attention.h"
#include "layers/carried/vector_log.h"

namespace quire {

struct FetchedEntries {
  std::vector<Tensor> logs;    // [N, ...] each, as they are stored
  std::vector<Tensor> scales;  // of each log; undefined where vectors have none
  Tensor slot;                 // i32 [R, ...]: the number of each chosen entry among the N; -1: none

  // Sets the stored blocks of a call, from the logs of their keys and values.
  void give_blocks(ops::ListedAttentionInputs& to) const;
};

// Says in which number type entries are returned: as they are stored, or the one that the model computes in.
enum class FetchAs { stored, computed };

// `chosen` i32 [R, ...] names entries by slot; with C slots per row, those of row r are r C, ..., r C + C - 1; -1:
// none. All logs have equally many slots, and all have scales or none has. Queue kernels that read the result after
// await_fetched.
//
// Vectors stored in other types than bf16 and the one that the model computes in are converted to the latter, without
// scales and each chosen entry once, with FetchAs::computed and always on a GPU, which then waits for their copies.
FetchedEntries fetch_entries(const StateView& state, std::initializer_list<VectorLog> logs, const Tensor& chosen,
                             FetchAs as = FetchAs::stored);
void await_fetched(Device device);

}  // namespace quire
