// Long documents in which facts come back: surnames, numbers, definitions and signs (config.kinds). What a fact says
// cannot be guessed, only remembered, and it follows the same word each time, so that the last mention is all a reader
// needs. Where a fact comes back after config.nearest tokens or more, its words are marked as recalled.
#pragma once

#include "data/tasks/task.h"

namespace quire {

class RecallTask : public Task {
 public:
  RecallTask(const TaskConfig& config, const TaskSources& sources, const std::string& where);
  std::unique_ptr<TaskDocument> document(int64_t index) const override;

 private:
  const Tokenizer& tokenizer_;
  const Filler& filler_;
};

}  // namespace quire
