// The documents of a task in the form in which rows read them. A document is made when it is read, and the last few are
// kept. For one thread.
#pragma once

#include <deque>

#include "data/tasks/task.h"

namespace quire {

class TaskDocuments : public Documents {
 public:
  // `kept`: the number of documents that are read side by side.
  TaskDocuments(std::unique_ptr<Task> task, int64_t kept) : task_(std::move(task)), kept_(static_cast<size_t>(kept)) {}

  const Task& task() const { return *task_; }
  int64_t length(int64_t document) const override { return task_->positions(document) - 1; }
  void tokens(int64_t document, int64_t begin, int64_t count, int32_t* out) const override {
    find(document).tokens(begin, count, out);
  }
  void marks(int64_t document, int64_t begin, int64_t count, uint8_t* out) const override {
    find(document).marks(begin, count, out);
  }
  bool marked() const override { return true; }

 private:
  struct Made {
    int64_t index = 0;
    std::unique_ptr<TaskDocument> document;
  };
  const TaskDocument& find(int64_t index) const {
    for (const Made& made : made_) {
      if (made.index == index) return *made.document;
    }
    if (made_.size() == kept_) made_.pop_front();
    made_.push_back({index, task_->document(index)});
    return *made_.back().document;
  }

  std::unique_ptr<Task> task_;
  size_t kept_;
  mutable std::deque<Made> made_;  // a cache; the task can make each document again
};

}  // namespace quire
