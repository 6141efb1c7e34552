// Evaluates perplexity: each document is read from its beginning to its end with its own state.
#pragma once

#include "data/corpus/corpus.h"
#include "trainers/evaluation/evaluation_options.h"
#include "trainers/evaluation/evaluation_result.h"
#include "trainers/setup/model.h"

namespace quire {

// Throws Error(config) when documents cannot be read in windows with this stride: it is larger than data.subsequence,
// or the model inserts tokens.
void require_stride(const RunConfig& config, int64_t stride);

// `config` comes from evaluation_config(). The store has the weights; training state is left untouched.
EvaluationResult evaluate(ParameterStore& store, const RunConfig& config, Corpus& corpus, const Machine& machine,
                          const EvaluationOptions& options);

}  // namespace quire
