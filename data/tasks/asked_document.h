// A generated document whose end answers a question.
#pragma once

#include "data/tasks/task.h"

namespace quire {

class AskedDocument : public TaskDocument {
 public:
  // Returns the index of the stored token with which the answer begins.
  virtual int64_t answer_begin() const = 0;
  virtual const std::vector<int32_t>& answer() const = 0;
  // Returns the token of the answer that a published metric compares.
  virtual int64_t scored() const { return 0; }
  // Returns the largest number of tokens of a reply; 0 for tasks whose answers are only compared token by token.
  virtual int64_t reserve() const { return 0; }
  // Returns the published score of a reply, from 0 to 1.
  virtual double score([[maybe_unused]] std::string_view reply) const { return 0; }
  // Returns whether the score stays the same however the reply goes on.
  virtual bool is_settled([[maybe_unused]] std::string_view reply) const { return true; }
};

class AskingTask : public Task {
 public:
  virtual std::unique_ptr<AskedDocument> ask(int64_t index) const = 0;

 protected:
  using Task::Task;
};

}  // namespace quire
