// Evaluates perplexity: each document is read from its beginning to its end with its own state.
#pragma once

#include <functional>
#include <optional>

#include "core/ranks/ranks.h"
#include "data/corpus/corpus.h"
#include "trainers/evaluation/evaluation_result.h"
#include "trainers/setup/model.h"

namespace quire {

struct EvaluationOptions {
  std::string split;
  int64_t rows = 8;                                             // at least one per rank
  std::optional<int64_t> documents;                             // reads only the first so many,
  std::optional<int64_t> tokens = {};                           // until so many targets: the last document is cut,
  std::vector<int64_t> only = {};                               // or, unless empty, only these, in ascending order
  std::function<void(int64_t tokens, int64_t total)> progress;  // may be empty
  std::function<bool()> stop;                                   // may be empty; asked after every step
  std::optional<int64_t> bin_width = {};                        // 0: powers of two; nothing: no bins
  bool each_target = false;                                     // fills EvaluationResult::targets
  // The ranks divide the documents; all get the same result, equal to that of one rank. nullptr: this rank reads all.
  // Progress counts all ranks, and all ranks call both functions at the same moments, with the same answer.
  Ranks* ranks = nullptr;
};

// `config` comes from evaluation_config(). The store has the weights; training state is left untouched.
EvaluationResult evaluate(ParameterStore& store, const RunConfig& config, Corpus& corpus, const Machine& machine,
                          const EvaluationOptions& options);

}  // namespace quire
