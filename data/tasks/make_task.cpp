#include "data/tasks/make_task.h"

#include "core/check.h"
#include "data/tasks/needle_task.h"
#include "data/tasks/recall_task.h"

namespace quire {

std::unique_ptr<Task> make_task(const TaskConfig& config, const TaskSources& sources, const std::string& where) {
  QUIRE_CHECK(config.kind().has_value(), "make_task: {} is no task", config.task.value_or("none"));
  if (config.kind() == TaskKind::recall) return std::make_unique<RecallTask>(config, sources, where);
  return std::make_unique<NeedleTask>(config, sources, where);
}

}  // namespace quire
