// Token embedding and the projection to the vocabulary with its cross-entropy.
#pragma once

#include "autograd/tape.h"

namespace quire {

// Returns [R, T, E] = scale * table[ids [R, T]]; ids i32. A negative id gives zeros.
Variable embedding(Tape& tape, const Variable& table, const Tensor& ids, double scale);

// Weights of the terms that training adds to the negative log-likelihood (kernels/cross_entropy.h).
struct CrossEntropyExtras {
  double smoothing = 0;       // label smoothing
  double log_sum_weight = 0;  // z-loss
  bool any() const { return smoothing != 0 || log_sum_weight != 0; }
};

struct CrossEntropy {
  Variable sum = {};       // f64 [1]: nats over the counted targets, with what extras add
  Tensor nll = {};         // [M] per target, 0 where the mask is 0
  Tensor likelihood = {};  // f64 [1]: the sum of nll
  Tensor z_loss = {};      // f64 [1]: sum of log_sum^2; undefined without its weight
  Tensor uniform = {};     // f64 [1]: sum of the losses against equal probabilities; undefined without smoothing
};
// hidden [.., E], weight [V, E], bias [V] wide or undefined, targets i32 [M], mask u8 [M]. Logits are computed once,
// for one chunk of tokens at a time. A chunk has at most logits_budget logits; 0 means 16 Mi, and on a GPU at least
// 4096 tokens, since the weight and its gradient are read for every chunk. The gradients of the logits are computed
// together with them, in the forward pass, scaled by `seed`: the weight that Tape::backward will be given for the sum.
// The weight matrix therefore receives its gradient before the backward pass, so it must have been cleared.
CrossEntropy projection_cross_entropy(Tape& tape, const Variable& hidden, const Variable& weight, const Variable& bias,
                                      const Tensor& targets, const Tensor& mask, double seed = 1.0,
                                      int64_t logits_budget = 0, const CrossEntropyExtras& extras = {});
// Computes the same with a vocabulary in two parts: the ids of `more` follow those of `first`.
struct VocabularyPart {
  Variable weight;  // [V, E]
  Variable bias;    // [V] wide; defined in both parts or in none
};
CrossEntropy projection_cross_entropy(Tape& tape, const Variable& hidden, const VocabularyPart& first,
                                      const VocabularyPart& more, const Tensor& targets, const Tensor& mask,
                                      double seed = 1.0, int64_t logits_budget = 0,
                                      const CrossEntropyExtras& extras = {});

}  // namespace quire
