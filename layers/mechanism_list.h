// The mechanisms of quire, a line each: its descriptor stands in the file named beside it.
#pragma once

#include "layers/mechanism.h"

namespace quire {

Mechanism softmax_mixer();  // layers/mixers/softmax_attention
Mechanism vq_mixer();       // layers/mixers/vq_attention
Mechanism knn_memory();     // layers/memory/knn
Mechanism plain_stack();    // layers/stacks/plain

// The first one of a role is the default.
inline std::vector<Mechanism> mechanisms_of_quire() {
  return {softmax_mixer(), vq_mixer(), knn_memory(), plain_stack()};
}

}  // namespace quire
