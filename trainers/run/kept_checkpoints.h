// Decides which checkpoints of a run stay: the newest, milestones, and the best one. The best checkpoint is that of the
// stored evaluation with the lowest loss (RUN/evaluations/SPLIT.best.json), so both name the same step.
#pragma once

#include <filesystem>

#include "trainers/evaluation/stored_evaluation.h"
#include "trainers/setup/config.h"

namespace quire {

// Says whether the weights of an evaluation are to become the best checkpoint of the run: the run has none, it has read
// other documents, or had a higher loss.
bool becomes_best(const std::filesystem::path& run_directory, const StoredEvaluation& evaluation);

// Makes the link of the best checkpoint agree with the stored evaluation of the split; without checkpoint.best there is
// no link.
void link_best_of_run(const std::filesystem::path& run_directory, const RunConfig& config);

// Removes all checkpoints that neither checkpoint.keep nor milestones nor best keep.
void remove_old_checkpoints(const std::filesystem::path& run_directory, const RunConfig& config);

}  // namespace quire
