// What every layer of one forward pass shares.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "autograd/tape.h"
#include "core/batch.h"
#include "core/random.h"
#include "kernels/elementwise.h"
#include "layers/batch_tables.h"
#include "layers/state/state_view.h"
#include "layers/telemetry.h"

namespace quire {

// Entries that a layer chose (top-k), by the scope of the layer.
using Selections = std::map<uint32_t, Tensor>;

struct CommitmentSeeds {
  double by_token = 0;
  double by_position = 0;
};

struct Forward {
  std::reference_wrapper<Tape> tape;
  const Batch& batch;
  StateView state;
  RandomKey key{};
  RandomKey position_key{};  // of dropout.position: the same for dropout.position_steps steps
  bool training = false;
  // Reading ahead of a document leaves its state as it is when false (scoring alternatives, for example).
  bool write_state = true;
  // The second pass of a recomputation: selections of the first one are used, not made again.
  bool again = false;
  std::shared_ptr<Selections> selections = {};
  // Where layers leave numbers about themselves, when somebody looks.
  Telemetry* telemetry = nullptr;
  // Squared distances of keys to their codewords are added here, f64 [1], where it is defined. Their gradient does not
  // wait for the sweep to be seeded with them: it is 1 / tokens, or 1 / positions, of the whole step, times the weight
  // in a layer.
  Tensor commitment = {};
  CommitmentSeeds commitment_seeds = {};
  // What the sweep will be seeded with for the sum of nats: 1 / targets of the whole step in training.
  double nll_seed = 1;

  // What layers derive from the batch; every copy of this struct shares it.
  std::shared_ptr<BatchTables> tables = std::make_shared<BatchTables>();

  // The same pass on another tape; the second pass of a recomputation writes nothing.
  Forward on(Tape& other, bool second) const {
    Forward pass = *this;
    pass.tape = other;
    pass.again = second;
    if (!second) return pass;
    pass.write_state = false;
    pass.telemetry = nullptr;
    pass.commitment = Tensor();
    return pass;
  }

  ops::DropoutKey dropout(uint32_t scope, double probability) const {
    return {key, scope, batch.first_row, training ? probability : 0.0};
  }
};

}  // namespace quire
