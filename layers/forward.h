// What every layer of one forward pass shares.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "autograd/tape.h"
#include "core/batch.h"
#include "core/random.h"
#include "kernels/attention_choices.h"
#include "kernels/elementwise.h"
#include "layers/batch_tables.h"
#include "layers/declarations.h"
#include "layers/retrieval.h"
#include "layers/state/state_view.h"

namespace quire {

// Entries that a layer chose (top-k), by the layer's random scope.
using Selections = std::map<uint32_t, Tensor>;

struct Forward {
  std::reference_wrapper<Tape> tape;
  const Batch& batch;
  StateView state;
  RandomKey key{};
  RandomKey position_key{};  // of dropout.position: the same for dropout.position_steps steps
  bool training = false;
  // false: the pass leaves the state of documents as it is (scoring alternative continuations, for example).
  bool write_state = true;
  // The second pass of a recomputation: selections of the first one are used, not made again.
  bool again = false;
  std::shared_ptr<Selections> selections = {};
  // What layers leave for later ones, by ValueId.
  std::shared_ptr<std::vector<Variable>> values = {};
  // Where layers write numbers about themselves; nullptr when none are wanted.
  Telemetry* telemetry = nullptr;
  // Where mechanisms that retrieve report what they have read; nullptr when no report is wanted.
  Retrievals* retrieved = nullptr;
  // Sums of auxiliary losses, f64 [terms]; undefined when they are not wanted. loss_seeds: 1 / count of each in the
  // whole step; empty outside training. See layers/auxiliary_loss.h.
  Tensor loss_sums = {};
  std::vector<double> loss_seeds = {};
  // The weight that Tape::backward will be given for the sum of nats: in training 1 / targets of the whole step.
  double nll_seed = 1;
  // In training steps: which kernels were chosen for attention. nullptr: those of this program.
  const AttentionChoices* attention = nullptr;
  // Rows may hold several documents, whether those of this batch do or not: data.pack: concat.
  bool several_documents = false;
  // Tables that layers derive from the batch; every copy of this struct shares them.
  std::shared_ptr<BatchTables> tables = std::make_shared<BatchTables>();

  // The same pass on another tape; the second pass of a recomputation writes nothing.
  Forward on(Tape& other, bool second) const {
    Forward pass = *this;
    pass.tape = other;
    if (!second) return pass;
    pass.write_state = false;
    pass.again = true;
    pass.telemetry = nullptr;
    pass.retrieved = nullptr;
    pass.loss_sums = {};
    return pass;
  }

  ops::DropoutKey dropout(uint32_t scope, double probability) const {
    return {key, scope, batch.first_row, training ? probability : 0.0};
  }
};

}  // namespace quire
