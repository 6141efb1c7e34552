// The decoder-only language model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/functions/embedding.h"
#include "core/insertion.h"
#include "layers/model/stack.h"
#include "layers/parts/basic.h"

namespace quire {

// One part of the loss. A sum without a gradient is only reported: its gradient is already part of the cross-entropy's
// backward pass (layers/pass/auxiliary_loss.h). Sums and counts cross micro-batches and ranks, never means.
struct LossTerm {
  std::string name;
  Variable sum;       // f64 [1]
  int64_t count = 0;  // of this micro-batch
};

struct LossTerms {
  std::vector<LossTerm> terms;
  Tensor nll;  // [R * T]: nats per target, 0 where nothing is counted
};

struct TargetScores {
  Tensor nll;                 // as LossTerms::nll
  std::vector<int32_t> best;  // the most likely token at each cell that was asked for
};

class LanguageModel {
 public:
  // Declares parameters and state through the scope, whose declarations outlive the model. vocabulary counts the
  // tokenizer's ids; the model may have more rows (model.vocabulary), whose logits count in the softmax alone. The ids
  // that the model's mechanisms insert follow those of the tokenizer; they have embeddings of their own, and logits in
  // the loss alone, where they are predicted (Insertion::predicted). Throws Error(config) for fewer rows than ids.
  LanguageModel(const Scope& scope, const ModelConfig& config, int64_t vocabulary);

  // The counts that loss() will report for a batch, known before any forward pass: gradients are scaled exactly. First
  // the targets of the text. Inserted tokens that are predicted come last: each weighs as much as a token of the text,
  // and has its nats in a term of its own. Behind them are the terms of extras, over the targets of both.
  std::vector<std::pair<std::string, int64_t>> loss_counts(const Batch& batch,
                                                           const CrossEntropyExtras& extras = {}) const;
  LossTerms loss(const Forward& f) const;
  // Computes the loss of every target and the most likely tokens at some cells (r * T + t). The tape must not record.
  // Logits exist for a few cells at a time.
  TargetScores score(const Forward& f, const std::vector<int64_t>& cells) const;
  // Returns the loss of every target (LossTerms::nll; undefined where none counts) and computes the logits of the token
  // after each of these cells. `use` is called with a few cells at a time, of which `first` is the place of the first
  // one: logits, f32 or f64 [n, rows], have all rows of model.vocabulary, the tokenizer's ids first. The tape must not
  // record.
  using UseLogits = std::function<void(const Tensor& nll, size_t first, const Tensor& logits)>;
  Tensor read(const Forward& f, const std::vector<int64_t>& cells, const UseLogits& use) const;
  // Returns, for generation, f32 or f64 [R, V]: logits of the token after position `at` of each row. V counts the
  // tokenizer's ids.
  Tensor next_logits(const Forward& f, int64_t at) const;

  int64_t vocabulary() const { return vocabulary_; }
  // The ids that stand between the tokens of every batch the model reads.
  const Insertion& insertion() const { return insertion_; }
  // Returns the learners of all layers (layers/learner.h), in the order of layers.
  const std::vector<Learner*>& learners() const { return declared_.learners; }

 private:
  Variable embedded(const Forward& f) const;  // [R, T, E]: what the tokens stand for
  Variable hidden(const Forward& f) const;    // [R, T, E] before the projection
  // with_inserted: of the text's targets and of the inserted tokens that are predicted, over the vocabulary of both.
  CrossEntropy cross_entropy(const Forward& f, const Variable& hidden, bool with_inserted) const;
  // Adds learned positions to x [R, T, E].
  Variable with_positions(const Forward& f, const Variable& x) const;
  // f32 or f64 [N, ids] of hidden states [N, E], of the first ids.
  Tensor logits(const Forward& f, const Tensor& hidden, int64_t ids) const;
  // Targets as rows of the projection: inserted ids stand behind all of the model's rows.
  std::vector<int32_t> target_rows(const Batch& batch) const;
  const Variable& head() const;  // [rows, E]
  // [V] of a bias, or undefined.
  Variable head_bias(Tape& tape, const Parameter& bias) const;

  // A copy of f with new storage for what its layers share.
  Forward begin(const Forward& f) const;

  ModelConfig config_;
  int64_t vocabulary_;
  int64_t rows_;  // of the embedding, at least vocabulary_
  Insertion insertion_;
  const Declarations& declared_;
  Parameter embedding_;
  Parameter inserted_;   // [inserted ids, E], when there are any
  Parameter sinusoid_;   // [1], the factor of positions
  Parameter positions_;  // learned ones, [N, E]
  std::unique_ptr<Stack> stack_;
  std::optional<Norm> norm_;
  Parameter head_;
  Parameter head_bias_;
  // Parameters of the inserted ids, when they are predicted; tied like the others.
  Parameter head_inserted_;
  Parameter head_inserted_bias_;
};

}  // namespace quire
