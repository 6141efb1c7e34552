// A model that reads batches one after the other in f64, as training and evaluation do, and gives access to the nats of
// every target, gradients and state.
#pragma once

#include <map>

#include "layers/state/state_pool.h"
#include "tests/support/document_rows.h"
#include "trainers/setup/model.h"

namespace quire::test {

// Nats per (document, position in the document).
using DocumentNll = std::map<std::pair<int64_t, int64_t>, double>;

class ModelReader {
 public:
  // Weights depend only on the configuration and the names of parameters.
  ModelReader(const ModelConfig& config, int64_t vocabulary, int64_t rows, int64_t length);

  // True when the next passes train; the same key gives the same dropout masks.
  bool training = false;
  // Receives the retrievals of the next passes.
  Retrievals* retrieved = nullptr;

  // Makes one step: reads, writes state, commits. Adds to `nll` when given.
  void step(const Batch& batch, DocumentNll* nll = nullptr);
  DocumentNll read(const std::vector<Batch>& batches);
  // Returns the nats of every cell of a batch after what was read so far; nothing is written.
  std::vector<double> nll(const Batch& batch);

  // Returns the loss (sum of nats) of a batch after what was read so far; nothing is written.
  double loss(const Batch& batch);
  // Makes the same step with its gradient, which stays in store().gradients().
  void gradient(const Batch& batch);

  // Returns the sums that each learner of the model gathers in a training pass over a batch, with or without its
  // backward pass; everything else is discarded.
  std::vector<std::vector<double>> learned(const Batch& batch, bool with_backward);

  // Returns the logits of the token after position `at` of each row, after what was read so far; nothing is written.
  Tensor next_logits(const Batch& batch, int64_t at);

  const ParameterStore& store() const { return store_; }
  StatePool& state() { return state_; }
  // Returns the carried state of each row, by name: registers, and the entries of logs from the oldest one on, wherever
  // they lie in the ring.
  std::map<std::string, std::vector<double>> carried();
  bool carries() const {
    return !network_.declared.state.logs().empty() || !network_.declared.state.registers().empty();
  }

 private:
  LossTerms forward(Tape& tape, const Batch& batch, bool write);

  ParameterStore store_;
  Network network_;
  StatePool state_;
};

}  // namespace quire::test
