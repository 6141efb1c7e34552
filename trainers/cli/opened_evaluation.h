// Opens what evaluations of a checkpoint read, for quire eval and quire compare, and keeps their results in the run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ranks/ranks.h"
#include "data/corpus/corpus.h"
#include "trainers/checkpoint/loaded_model.h"
#include "trainers/cli/eval_sweep.h"
#include "trainers/evaluation/evaluation_result.h"
#include "trainers/evaluation/stored_evaluation.h"

namespace quire {

struct EvaluationRequest {
  std::string checkpoint;                   // or a run directory: its newest whole checkpoint
  std::vector<std::string> overrides = {};  // key.path=value
  std::string corpus = {};                  // empty: data.corpus
  std::vector<std::string> splits = {};     // empty: those of evaluate.split
  std::vector<std::string> documents = {};  // names; empty: all
  std::optional<bool> ema = {};             // nothing: optimizer.ema.evaluate
  std::optional<int64_t> stride = {};       // as in EvaluationOptions
  std::optional<int64_t> last = {};
  std::vector<std::string> sweep = {};  // KEY=V1,V2: each combination of values is evaluated (combinations_of)
};

// One of the evaluations of a request.
struct PlannedEvaluation {
  std::string split;
  RunConfig config;
  KeyValues swept;  // the values of this evaluation
  std::optional<int64_t> stride;
  std::optional<int64_t> last;
  std::vector<int64_t> only;          // numbers of documents; empty: all
  bool as_the_run_evaluates = false;  // all documents, corpus, weights and settings of evaluations while training
  bool decides_best = false;          // of the split that checkpoint.best goes by
};

struct OpenedEvaluation {
  std::unique_ptr<Corpus> corpus;
  std::unique_ptr<LoadedModel> model;  // the same weights for all evaluations
  TrainedSoFar trained;                // seconds: nothing
  std::vector<PlannedEvaluation> planned;
};

// Every rank calls this, and all get the same error: Error(config) for the request, Error(data) for the corpus,
// Error(checkpoint).
OpenedEvaluation open_evaluation(const EvaluationRequest& request, Ranks& ranks);

// Evaluates with bins of the given width (PositionBins), and shows the progress. With bins of powers of two, what a run
// would evaluate itself is stored in its directory for quire compare, unless the run is going on; a failure to store it
// is a warning.
EvaluationResult evaluate(OpenedEvaluation& opened, const PlannedEvaluation& planned, int64_t bin_width,
                          bool each_target, Ranks& ranks);

// Returns what is stored of a result with bins of powers of two.
StoredEvaluation to_stored(const OpenedEvaluation& opened, const PlannedEvaluation& planned,
                           const EvaluationResult& result);

}  // namespace quire
