#include "data/tasks/make_task.h"

#include "core/check.h"
#include "data/tasks/needle_task.h"
#include "data/tasks/question_task.h"
#include "data/tasks/recall_task.h"

namespace quire {

std::unique_ptr<Task> make_task(const TaskConfig& config, const TaskSources& sources, const std::string& where) {
  QUIRE_CHECK(config.kind().has_value(), "make_task: {} is no task", config.task.value_or("none"));
  if (config.kind() == TaskKind::recall) return std::make_unique<RecallTask>(config, sources, where);
  if (config.kind() == TaskKind::question) {
    return std::make_unique<QuestionTask>(config, sources, QuestionUse::training, where);
  }
  return std::make_unique<NeedleTask>(config, sources, where);
}

std::unique_ptr<AskingTask> make_asking_task(const TaskConfig& config, const TaskSources& sources,
                                             const std::string& where) {
  QUIRE_CHECK(config.kind().has_value() && config.kind() != TaskKind::recall, "make_asking_task: {} asks nothing",
              config.task.value_or("none"));
  if (config.kind() == TaskKind::question) {
    return std::make_unique<QuestionTask>(config, sources, QuestionUse::asking, where);
  }
  return std::make_unique<NeedleTask>(config, sources, where);
}

bool asks_in_filler(const TaskConfig& config) {
  return config.kind() != TaskKind::question || config.align > 1 ||
         make_question_kind(*config.task)->reads_background();
}

}  // namespace quire
