// Long documents in which facts come back: surnames, numbers, definitions and signs (config.kinds). The content of a
// fact is random, so it can only be remembered, and it follows the same word each time, so that a reader needs only the
// last mention. Where a fact comes back after config.nearest tokens or more, its words are marked as recalled. For one
// thread.
#pragma once

#include "data/tasks/recall_value.h"
#include "data/tasks/task.h"

namespace quire {

class RecallTask : public Task {
 public:
  RecallTask(const TaskConfig& config, const TaskSources& sources, const std::string& where);
  std::unique_ptr<TaskDocument> document(int64_t index) const override;

 private:
  const Tokenizer& tokenizer_;
  const Filler& filler_;
  mutable RecallGuess guess_;  // caches its results
};

}  // namespace quire
