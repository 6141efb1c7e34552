#include "trainers/cli/opened_evaluation.h"

#include <algorithm>

#include "core/check.h"
#include "core/spelling.h"
#include "data/corpus/corpus_on_ranks.h"
#include "trainers/checkpoint/checkpoint_meta.h"
#include "trainers/cli/trained_model.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/run/kept_checkpoints.h"
#include "trainers/run/metrics.h"
#include "trainers/run/progress.h"
#include "trainers/run/run_directory.h"
#include "trainers/run/run_evaluations.h"
#include "trainers/run/training_clock.h"
#include "trainers/setup/evaluation_config.h"

namespace quire {

namespace {

// Keys that change neither what is computed nor what is read.
const std::vector<std::string> kBesideResults{"evaluate.rows", "evaluate.split", "run.threads", "data.corpus",
                                              "data.verify"};

// Returns the numbers of the documents with these names, ascending; none means all. A name that several documents have
// selects all of them.
std::vector<int64_t> numbers_of(const std::vector<std::string>& requested, const Split& split,
                                const std::string& name) {
  if (requested.empty()) return {};
  std::vector<std::string> names;
  for (int64_t document = 0; document < split.documents(); ++document) names.push_back(split.name(document));
  for (const std::string& one : requested) {
    if (std::find(names.begin(), names.end(), one) != names.end()) continue;
    const std::string meant = did_you_mean(names, one);
    fail(ErrorKind::config, "--document: split {} has no document '{}'{}", name, one,
         meant.empty() ? "; quire eval --documents prints their names" : meant);
  }
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::find(requested.begin(), requested.end(), names[i]) != requested.end())
      numbers.push_back(static_cast<int64_t>(i));
  }
  return numbers;
}

bool differ_in_results(const RunConfig& one, const RunConfig& other) {
  const std::vector<ConfigDifference> differences = diff_configs(one, other);
  return std::any_of(differences.begin(), differences.end(), [](const ConfigDifference& difference) {
    return std::find(kBesideResults.begin(), kBesideResults.end(), difference.key) == kBesideResults.end();
  });
}

void require_different(const std::vector<std::string>& splits) {
  for (auto split = splits.begin(); split != splits.end(); ++split) {
    if (std::find(splits.begin(), split, *split) != split) {
      fail(ErrorKind::config, "--split {}: is given twice", *split);
    }
  }
}

// Returns the configurations of all combinations of swept values. Only what changes a result is worth a sweep.
std::vector<std::pair<KeyValues, RunConfig>> swept_configs(const RunConfig& trained, const EvaluationRequest& request) {
  std::vector<std::pair<KeyValues, RunConfig>> configs;
  for (KeyValues& values : combinations_of(request.sweep, request.overrides)) {
    std::vector<std::string> overrides = request.overrides;
    for (const auto& [key, value] : values) {
      if (std::find(kBesideResults.begin(), kBesideResults.end(), key) != kBesideResults.end()) {
        fail(ErrorKind::config, "--sweep {}: results do not depend on this key{}", key,
             key == "evaluate.split" ? "; give --split several times" : "");
      }
      overrides.push_back(key + "=" + value);
    }
    configs.emplace_back(std::move(values), evaluation_config(trained, overrides, kBesideResults));
    if (request.stride) require_stride(configs.back().second, *request.stride);
    if (!request.corpus.empty()) configs.back().second.data.corpus = request.corpus;
  }
  return configs;
}

// Opens corpus and model of a checkpoint that may vanish meanwhile, since its run goes on (use_checkpoint).
void open_checkpoint_of(const std::filesystem::path& path, const EvaluationRequest& request, Ranks& ranks,
                        OpenedEvaluation& opened) {
  std::optional<CheckpointReader> reader;
  RunConfig own;
  std::vector<std::pair<KeyValues, RunConfig>> configs;
  ranks.on_all([&] {
    require_different(request.splits);
    reader = open_checkpoint(path);
    const RunConfig trained = checkpoint_config(*reader);
    own = evaluation_config(trained);
    configs = swept_configs(trained, request);
  });
  const RunConfig& chosen = configs.front().second;
  const std::vector<std::string>& splits = request.splits.empty() ? chosen.evaluate.split.names : request.splits;
  opened.corpus = open_corpus_on_ranks(chosen.data.corpus, chosen.data.verify, splits, ranks);
  ranks.on_all([&] {
    const std::unique_ptr<Tokenizer> tokenizer = checkpoint_tokenizer(*reader);
    if (opened.corpus->tokenizer().serialise() != tokenizer->serialise()) {
      fail(ErrorKind::data,
           "{}: its tokenizer ({}) is not the one the model was trained with ({}); prepare it with that one",
           chosen.data.corpus, opened.corpus->tokenizer().kind(), tokenizer->kind());
    }
    const CheckpointMeta meta = checkpoint_meta(*reader);
    const Weights weights = chosen_weights(request.ema, chosen);
    const bool as_the_run_reads = request.documents.empty() && !request.stride && !request.last &&
                                  opened.corpus->hash() == meta.corpus && weights == chosen_weights(std::nullopt, own);
    opened.planned.clear();
    for (const std::string& split : splits) {
      const std::vector<int64_t> only = numbers_of(request.documents, opened.corpus->split(split), split);
      const bool decides_best = own.checkpoint.best && split == own.evaluate.split.first();
      for (const auto& [values, config] : configs) {
        opened.planned.push_back({.split = split,
                                  .config = config,
                                  .swept = values,
                                  .stride = request.stride,
                                  .last = request.last,
                                  .only = only,
                                  .as_the_run_evaluates = as_the_run_reads && !differ_in_results(own, config),
                                  .decides_best = decides_best});
      }
    }
    opened.model.reset();
    opened.model = std::make_unique<LoadedModel>(*reader, chosen, weights);
    opened.trained = {reader->step(), meta.tokens, std::nullopt};
  });
}

// Returns nothing without metrics, and where they are damaged: figures that took long are not lost for that.
std::optional<double> training_seconds(const OpenedEvaluation& opened) {
  const auto run = run_of_checkpoint(opened.model->checkpoint());
  if (!run) return std::nullopt;
  try {
    const auto time = TrainingClock(read_metric_columns(*run / "metrics.jsonl")).at(opened.trained.step);
    return time ? std::optional(time->seconds) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void store(const OpenedEvaluation& opened, const PlannedEvaluation& planned, const EvaluationResult& result) {
  const auto run = run_of_checkpoint(opened.model->checkpoint());
  if (!run || RunDirectory::is_in_use(*run)) return;
  try_to_store_run_evaluation(*run, to_stored(opened, planned, result), ReplaceBest::when_same_and_lower);
  if (planned.decides_best) link_best_of_run(*run, planned.config);
}

}  // namespace

OpenedEvaluation open_evaluation(const EvaluationRequest& request, Ranks& ranks) {
  OpenedEvaluation opened;
  use_checkpoint(request.checkpoint, ranks,
                 [&](const std::filesystem::path& path) { open_checkpoint_of(path, request, ranks, opened); });
  return opened;
}

EvaluationResult evaluate(OpenedEvaluation& opened, const PlannedEvaluation& planned, int64_t bin_width,
                          bool each_target, Ranks& ranks) {
  std::unique_ptr<Progress> progress;
  EvaluationResult result = evaluate(opened.model->store(), planned.config, *opened.corpus, opened.model->machine(),
                                     {.split = planned.split,
                                      .rows = planned.config.evaluate.rows,
                                      .documents = {},
                                      .only = planned.only,
                                      .last = planned.last,
                                      .stride = planned.stride,
                                      .progress =
                                          [&](int64_t done, int64_t total) {
                                            if (!progress) progress = std::make_unique<Progress>("eval", total);
                                            progress->update(done);
                                          },
                                      .stop = {},
                                      .bin_width = bin_width,
                                      .each_target = each_target,
                                      .ranks = &ranks});
  if (progress) progress->finish();
  if (bin_width == 0 && planned.as_the_run_evaluates && ranks.is_root()) store(opened, planned, result);
  return result;
}

StoredEvaluation to_stored(const OpenedEvaluation& opened, const PlannedEvaluation& planned,
                           const EvaluationResult& result) {
  TrainedSoFar trained = opened.trained;
  trained.seconds = training_seconds(opened);
  const std::string weights = opened.model->weights() == Weights::average ? "average" : "trained";
  return stored_evaluation(result, planned.config, *opened.corpus, weights, trained);
}

}  // namespace quire
