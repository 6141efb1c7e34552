// What every layer of one forward pass shares.
#pragma once

#include "autograd/tape.h"
#include "core/batch.h"
#include "core/random.h"
#include "kernels/elementwise.h"
#include "layers/state.h"

namespace quire {

struct Forward {
  Tape& tape;
  const Batch& batch;
  StateView state;
  RandomKey key{};
  bool training = false;
  // Reading ahead of a document leaves its state as it is when false (scoring alternatives, for example).
  bool write_state = true;
  // What the sweep will be seeded with for the sum of nats: 1 / targets of the whole step in training.
  double nll_seed = 1;

  // The same pass on another tape; the second pass of a recomputation writes nothing.
  Forward on(Tape& other, bool again) const {
    return {.tape = other,
            .batch = batch,
            .state = state,
            .key = key,
            .training = training,
            .write_state = write_state && !again};
  }

  ops::DropoutKey dropout(uint32_t scope, double probability) const {
    return {key, scope, batch.first_row, training ? probability : 0.0};
  }
};

}  // namespace quire
