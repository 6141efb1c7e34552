// The evaluations that a run directory keeps: RUN/evaluations/SPLIT.latest.json and SPLIT.best.json.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trainers/evaluation/stored_evaluation.h"

namespace quire {

enum class WhichEvaluation {
  latest,  // of the largest step
  best,    // with the lowest loss
};

// When an evaluation replaces the best one.
enum class ReplaceBest {
  when_lower,           // it has a lower loss, or has read other documents
  when_same_and_lower,  // it has read the same documents with a lower loss, or there is none
  always,
  never,
};

std::filesystem::path evaluation_file(const std::filesystem::path& run_directory, const std::string& split,
                                      WhichEvaluation which);

// Returns nothing when the run has none. Throws Error(data) for a damaged or foreign file.
std::optional<StoredEvaluation> read_run_evaluation(const std::filesystem::path& run_directory,
                                                    const std::string& split, WhichEvaluation which);

// Replaces the latest evaluation unless that one has a larger step, and the best one as `replace` says. A file is
// replaced as a whole. Throws Error(disk) when one cannot be written, Error(config) when a file is there that is no
// such evaluation.
void store_run_evaluation(const std::filesystem::path& run_directory, const StoredEvaluation& evaluation,
                          ReplaceBest replace = ReplaceBest::when_lower);
// Does the same; a failure is a warning, because figures that are printed or logged anyway are worth more than a run.
void try_to_store_run_evaluation(const std::filesystem::path& run_directory, const StoredEvaluation& evaluation,
                                 ReplaceBest replace = ReplaceBest::when_lower);

// Removes evaluations of steps after `step`, before a run continues from there.
void remove_run_evaluations_after(const std::filesystem::path& run_directory, int64_t step);

// Returns the run directory of RUN/checkpoints/step-N; nothing for a checkpoint elsewhere.
std::optional<std::filesystem::path> run_of_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace quire
