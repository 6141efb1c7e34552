// Makes the task that a configuration names.
#pragma once

#include "data/tasks/task.h"

namespace quire {

// Throws Error(config), beginning with `where`, when the tokenizer cannot write the key or a length is too short.
std::unique_ptr<Task> make_task(const TaskConfig& config, const TaskSources& sources, const std::string& where);

}  // namespace quire
