// The files and objects that a run opens before anything is made for it.
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
  std::optional<InitialWeights> weights;     // for a new run with init.from

  // Finds everything that can be wrong with machine, configuration and data, and ranks that were started with another
  // program, configuration or corpus. Every rank calls this; errors are thrown on all.
  static OpenedRun open(const RunConfig& config, Ranks& ranks, bool begins);
};

// The checks of OpenedRun::open for a new run that this machine can make: everything about the data and the machine. It
// also returns what could not be checked.
struct RunLook {
  std::unique_ptr<Corpus> corpus;            // nullptr where data.vocabulary stands for a corpus that is not here
  std::unique_ptr<TrainingMixture> mixture;  // nullptr without data.mix
  std::vector<std::string> not_looked_at;
};
RunLook look_at_run(const RunConfig& config);
// Checks the data alone. With `without_corpus` a corpus that does not exist is no fault when data.vocabulary is given.
RunLook look_at_data(const RunConfig& config, bool without_corpus);

}  // namespace quire
