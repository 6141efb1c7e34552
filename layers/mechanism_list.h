// The mechanisms of quire, one line each, with the file that holds its descriptor.
#pragma once

#include "layers/mechanism.h"

namespace quire {

Mechanism softmax_mixer();   // layers/mixers/softmax_mechanism.cpp
Mechanism vq_mixer();        // layers/mixers/vq_attention.cpp
Mechanism landmark_mixer();  // layers/mixers/landmark_mechanism.cpp
Mechanism moba_mixer();      // layers/mixers/moba_mechanism.cpp
Mechanism knn_memory();      // layers/memory/knn_mechanism.cpp
Mechanism plain_stack();     // layers/stacks/plain.cpp
Mechanism drt_stack();       // layers/stacks/drt_mechanism.cpp

// The first one of a role is the default.
inline std::vector<Mechanism> mechanisms_of_quire() {
  return {softmax_mixer(), vq_mixer(), landmark_mixer(), moba_mixer(), knn_memory(), plain_stack(), drt_stack()};
}

}  // namespace quire
