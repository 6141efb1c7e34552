// What a run reads before anything is made for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ranks/ranks.h"
#include "data/batches/batch_options.h"
#include "trainers/checkpoint/initial_weights.h"
#include "trainers/setup/model.h"
#include "trainers/setup/training_mixture.h"

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

// The refusals of OpenedRun::open for a run that begins, as far as this machine shows them: everything about the data
// and what it needs of the machine. Returns what could not be looked at.
struct RunLook {
  std::unique_ptr<Corpus> corpus;            // nullptr where data.vocabulary stands for a corpus that is not here
  std::unique_ptr<TrainingMixture> mixture;  // nullptr without data.mix
  std::vector<std::string> not_looked_at;
};
RunLook look_at_run(const RunConfig& config);
// Of the data alone. With `without_corpus` a corpus that does not exist is no fault where data.vocabulary is given.
RunLook look_at_data(const RunConfig& config, bool without_corpus);

}  // namespace quire
