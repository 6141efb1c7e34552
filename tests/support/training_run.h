// A training run without a run directory: batches of a small corpus, one optimizer step after the other, and everything
// a checkpoint must bring back as bytes.
#pragma once

#include <map>
#include <string>

#include "data/batches/batch_source.h"
#include "trainers/checkpoint/training_checkpoint.h"

namespace quire::test {

// The complete result of a run. Two runs are the same when these are equal.
struct RunSnapshot {
  std::map<std::string, std::vector<std::byte>> tensors;  // weights, moments, state
  Cursor cursor;
  int64_t step = 0;
  int64_t tokens = 0;
};
// Names of what differs; empty when all bits are the same.
std::string difference(const RunSnapshot& a, const RunSnapshot& b);

class TrainingRun {
 public:
  // Corpus and ranks must outlive this; there is one rank unless others are given.
  TrainingRun(const RunConfig& config, Corpus& corpus, Ranks* ranks = nullptr);
  // Goes on from a checkpoint.
  TrainingRun(const RunConfig& config, Corpus& corpus, const std::filesystem::path& checkpoint,
              bool drop_state = false);

  StepResult step(ReadResult read = ReadResult::always);
  std::vector<double> losses(int64_t steps);  // of so many more steps

  std::filesystem::path save(const std::filesystem::path& folder);
  RunSnapshot snapshot() const;

  TrainingState& training() { return *training_; }
  const Machine& machine() const { return machine_; }
  const Cursor& cursor() const { return cursor_; }

 private:
  RunConfig config_;
  Corpus& corpus_;
  Machine machine_;
  Ranks one_;
  Ranks& ranks_;
  std::unique_ptr<TrainingState> training_;
  std::unique_ptr<BatchSource> batches_;
  Cursor cursor_;
};

}  // namespace quire::test
