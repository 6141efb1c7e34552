// One forward pass, as its layers see it.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "autograd/functions/embedding.h"
#include "autograd/tape.h"
#include "core/batch.h"
#include "core/random.h"
#include "kernels/attention_choices.h"
#include "kernels/elementwise.h"
#include "layers/pass/batch_tables.h"
#include "layers/pass/declarations.h"
#include "layers/pass/retrieval.h"
#include "layers/state/state_view.h"

namespace quire {

// Holds the entries that a layer chose (top-k), by the layer's random scope.
using Selections = std::map<uint32_t, Tensor>;

struct Forward {
  // Layers read these.
  std::reference_wrapper<Tape> tape;
  const Batch& batch;
  StateView state;
  RandomKey key{};
  RandomKey position_key{};  // of dropout.position: the same for dropout.position_steps steps
  bool training = false;
  // Rows may hold several documents, whether those of this batch do or not: data.pack: concat.
  bool several_documents = false;
  // false: the pass leaves the state of documents as it is (scoring alternative continuations, for example).
  bool write_state = true;
  // Holds, in training steps, the kernels that were chosen for attention; nullptr: those of this program.
  const AttentionChoices* attention = nullptr;

  // Layers reach what follows through the functions below, add_loss and Recomputed.
  // The second pass of a recomputation: selections of the first one are used, not made again.
  bool again = false;
  std::shared_ptr<Selections> selections = {};
  // Holds the values that layers leave for later ones, by ValueId.
  std::shared_ptr<std::vector<Variable>> values = {};
  Telemetry* telemetry = nullptr;  // nullptr when no numbers are asked for
  // Both are nullptr when nobody asks for what queries have retrieved.
  Retrievals* retrieved = nullptr;
  RetrievedDistances* distances = nullptr;
  // Sums of auxiliary losses, f64 [terms]; undefined when they are not requested. loss_seeds: 1 / count of each in the
  // whole step; empty outside training. See layers/pass/auxiliary_loss.h.
  Tensor loss_sums = {};
  std::vector<double> loss_seeds = {};
  // The weight that Tape::backward will be given for the sum of nats: in training 1 / targets of the whole step.
  double nll_seed = 1;
  CrossEntropyExtras extras = {};  // of training steps
  // Tables that layers derive from the batch; every copy of this struct shares them.
  std::shared_ptr<BatchTables> tables = std::make_shared<BatchTables>();

  // Returns the same pass on another tape; the second pass of a recomputation writes nothing.
  Forward on(Tape& other, bool second) const {
    Forward pass = *this;
    pass.tape = other;
    if (!second) return pass;
    pass.write_state = false;
    pass.again = true;
    pass.telemetry = nullptr;
    pass.retrieved = nullptr;
    pass.distances = nullptr;
    pass.loss_sums = {};
    return pass;
  }

  // Returns the table of a name, which make derives from the batch and from nothing else but the numbers. It is made
  // once in a pass, whichever layers ask for it.
  Tensor table(std::string_view name, std::vector<int64_t> numbers, const std::function<Tensor()>& make) const {
    return tables->find({hash_scope(name), std::move(numbers)}, make);
  }

  // Returns what a layer chooses, such as the indices of a top-k. The second pass of a recomputation gets the choice of
  // the first; make is called in the first alone. `scope` is the layer's random scope.
  Tensor selection(uint32_t scope, const std::function<Tensor()>& make) const;

  // Values that one layer leaves for later ones of the same pass.
  const Variable& value(ValueId id) const { return values->at(static_cast<size_t>(id.index)); }
  void leave_value(ValueId id, const Variable& value) const { values->at(static_cast<size_t>(id.index)) = value; }

  bool wants_telemetry() const { return telemetry != nullptr; }
  bool wants_retrievals() const { return retrieved != nullptr || distances != nullptr; }
  // Adds a number to metrics.jsonl. `name` is dotted, as in checkpoints: blocks.3.attention.codebook.perplexity.
  void add_telemetry(std::string name, double number) const { telemetry->emplace_back(std::move(name), number); }
  // Adds what a query of the layer `name` has retrieved. A query that has retrieved nothing adds nothing.
  void add_retrieval(const std::string& name, const Retrieval& read) const {
    if (retrieved != nullptr) (*retrieved)[name].push_back(read);
    if (distances != nullptr) distances->add(name, read, batch);
  }

  ops::DropoutKey dropout(uint32_t scope, double probability) const {
    return {key, scope, batch.first_row, training ? probability : 0.0};
  }
};

}  // namespace quire
