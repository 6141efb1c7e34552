// Perplexity of documents, each read from its beginning to its end with its own state.
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
  int64_t rows = 8;                                             // more where there are more ranks
  std::optional<int64_t> documents;                             // only the first so many,
  std::optional<int64_t> tokens = {};                           // until so many targets: the last document is cut,
  std::vector<int64_t> only = {};                               // or only these, if any, in ascending order
  std::function<void(int64_t tokens, int64_t total)> progress;  // may be empty
  std::function<bool()> stop;                                   // may be empty; asked after every step
  std::optional<int64_t> bin_width = {};                        // 0: powers of two; nothing: no bins
  bool each_target = false;                                     // EvaluationResult::targets
  // They share the documents out; all have the same result, which is that of one rank. nullptr: this rank reads all.
  // Progress is that of all ranks, and both functions are called at the same moments by all, with the same answer.
  Ranks* ranks = nullptr;
};

// config: from evaluation_config(). The store holds the weights; nothing of the training state is touched.
EvaluationResult evaluate(ParameterStore& store, const RunConfig& config, Corpus& corpus, const Machine& machine,
                          const EvaluationOptions& options);

}  // namespace quire
