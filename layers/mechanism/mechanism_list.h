// The mechanisms of quire, one line each: the function that returns the descriptor. The first one of a role is the
// default.
#pragma once

#include "layers/mechanism/mechanism.h"

#define QUIRE_MECHANISMS(MECHANISM)                                       \
  MECHANISM(softmax_mixer)         /* mixers/softmax_mechanism */         \
  MECHANISM(vq_mixer)              /* mixers/vq_attention */              \
  MECHANISM(landmark_mixer)        /* mixers/landmark_mechanism */        \
  MECHANISM(moba_mixer)            /* mixers/moba_mechanism */            \
  MECHANISM(hils_mixer)            /* mixers/hils_mechanism */            \
  MECHANISM(infini_mixer)          /* mixers/infini_mechanism */          \
  MECHANISM(delta_mixer)           /* mixers/delta_mechanism */           \
  MECHANISM(block_recurrent_mixer) /* mixers/block_recurrent_mechanism */ \
  MECHANISM(knn_memory)            /* memory/knn_mechanism */             \
  MECHANISM(plain_stack)           /* stacks/plain */                     \
  MECHANISM(drt_stack)             /* stacks/drt_mechanism */

namespace quire {

#define QUIRE_DECLARE(function) Mechanism function();
QUIRE_MECHANISMS(QUIRE_DECLARE)
#undef QUIRE_DECLARE

inline std::vector<Mechanism> mechanisms_of_quire() {
#define QUIRE_CALL(function) function(),
  return {QUIRE_MECHANISMS(QUIRE_CALL)};
#undef QUIRE_CALL
}

}  // namespace quire
