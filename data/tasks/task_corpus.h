// Writes a corpus of generated documents with marks, for `quire prepare --task`.
#pragma once

#include <functional>

#include "data/corpus/prepare.h"
#include "data/tasks/task_config.h"

namespace quire {

struct TaskCorpusOptions {
  TaskConfig task;
  std::vector<std::string> splits;  // NAME=COUNT
  uint64_t seed = 1;
  std::string filler;     // CORPUS[:SPLIT]; empty: the built-in grammar
  std::string tokenizer;  // as in PrepareOptions; empty with a filler, whose tokenizer is used
  std::filesystem::path output;
  bool lossy_tokenizer = false;
  bool force = false;
};

// Documents are numbered through all splits, so no document is in two splits. `progress` counts documents.
PrepareReport prepare_task_corpus(const TaskCorpusOptions& options,
                                  const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace quire
