// Makes the task that a configuration names.
#pragma once

#include "data/tasks/asked_document.h"

namespace quire {

// Throws Error(config), beginning with `where`, when the tokenizer cannot write the key or a length is too short.
std::unique_ptr<Task> make_task(const TaskConfig& config, const TaskSources& sources, const std::string& where);
// Makes a task whose documents end with an answer: any but recall. Documents of questions keep tokens for a reply.
std::unique_ptr<AskingTask> make_asking_task(const TaskConfig& config, const TaskSources& sources,
                                             const std::string& where);

// Returns whether what stands before the answer holds text of the filler.
bool asks_in_filler(const TaskConfig& config);

}  // namespace quire
