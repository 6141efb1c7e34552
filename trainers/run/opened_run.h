// What a run reads before anything is made for it.
#pragma once

#include <memory>
#include <optional>

#include "core/ranks/ranks.h"
#include "data/batches/batch_options.h"
#include "trainers/checkpoint/initial_weights.h"
#include "trainers/run/model.h"
#include "trainers/run/training_mixture.h"

namespace quire {

struct OpenedRun {
  RunConfig config;
  Machine machine;
  std::unique_ptr<Corpus> corpus;
  std::unique_ptr<TrainingMixture> mixture;  // nullptr without data.mix
  std::optional<InitialWeights> weights;     // of a run that begins, with init.from

  // Everything that can be wrong with machine, configuration and data is found here, and so are ranks that were started
  // with another program, configuration or corpus. Every rank calls this; errors are those of all.
  static OpenedRun open(const RunConfig& config, Ranks& ranks, bool begins);
};

Sampling sampling_of(const DataConfig& data);

}  // namespace quire
