// The arithmetic of HiLS attention (hierarchical landmark sparse attention, 2026, and its published code), apart from
// the state that rows carry. A softmax over the whole past is a softmax within each chunk times the chunk's share. The
// first is computed for the K chunks that each token and key head chooses. For the second, the log of a chunk's sum,
// log sum_j exp(s q.k_j), is replaced by s l.k' + b, with a summary key k' and a bias b of the chunk and a score query
// l of the token: it chooses the chunks and weighs them, so that it learns from the loss.
#pragma once

#include "layers/mixers/hils_pass.h"

namespace quire {

HilsMix hils_mix(Tape& tape, const HilsConfig& config, const HilsShape& shape, const HilsTables& tables,
                 const HilsInput& in);

}  // namespace quire
