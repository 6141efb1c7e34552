// Generated documents with a known answer. A document depends only on (seed, task, index, options), and its length is
// known before it is made.
#pragma once

#include <memory>
#include <optional>

#include "data/corpus/documents.h"
#include "data/tasks/filler.h"
#include "data/tasks/task_config.h"

namespace quire {

class TaskDocument {
 public:
  virtual ~TaskDocument() = default;
  virtual int64_t length() const = 0;  // in stored tokens
  virtual void tokens(int64_t begin, int64_t count, int32_t* out) const = 0;
  virtual void marks(int64_t begin, int64_t count, uint8_t* out) const = 0;  // as Documents::marks()
  // Returns how many of the recalled targets the best guess gets right without having read the facts that they repeat:
  // an expectation, exact where a token is a character, too high where tokens are longer. Returns nothing where the
  // task has no number.
  virtual std::optional<double> chance() const { return std::nullopt; }
};

class Task {
 public:
  virtual ~Task() = default;
  // Returns the length in model positions: BOS and the stored tokens.
  int64_t positions(int64_t index) const;
  virtual std::unique_ptr<TaskDocument> document(int64_t index) const = 0;
  double mean_positions() const;

 protected:
  Task(const TaskConfig& config, uint64_t seed, uint32_t number) : config_(config), seed_(seed), number_(number) {}
  DocumentKey key_of(int64_t index) const { return {.seed = seed_, .task = number_, .index = index}; }

  TaskConfig config_;

 private:
  uint64_t seed_;
  uint32_t number_;
};

// The sources of a task's documents. Tokenizer and filler must outlive the task.
struct TaskSources {
  const Tokenizer& tokenizer;
  const Filler& filler;
  uint64_t seed = 0;
  uint32_t number = 0;  // distinguishes the tasks of one run
};

}  // namespace quire
