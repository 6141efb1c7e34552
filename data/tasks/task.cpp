#include "data/tasks/task.h"

#include <cmath>

#include "core/check.h"
#include "data/tasks/needle_task.h"
#include "data/tasks/recall_task.h"

namespace quire {

int64_t Task::positions(int64_t index) const {
  if (!config_.shortest || *config_.shortest == config_.length) return config_.length;
  TaskRandom random(key_of(index), "data.tasks.length");
  const auto shortest = static_cast<double>(*config_.shortest);
  const double drawn =
      shortest * std::exp2(random.uniform() * std::log2(static_cast<double>(config_.length) / shortest));
  const int64_t aligned = static_cast<int64_t>(drawn) / config_.align * config_.align;
  return std::clamp(aligned, *config_.shortest, config_.length);
}

double Task::mean_positions() const {
  const auto length = static_cast<double>(config_.length);
  if (!config_.shortest || *config_.shortest == config_.length) return length;
  const auto shortest = static_cast<double>(*config_.shortest);
  return (length - shortest) / std::log(length / shortest);
}

std::unique_ptr<Task> make_task(const TaskConfig& config, const TaskSources& sources, const std::string& where) {
  QUIRE_CHECK(config.kind().has_value(), "make_task: {} is no task", config.task.value_or("none"));
  if (config.kind() == TaskKind::recall) return std::make_unique<RecallTask>(config, sources, where);
  return std::make_unique<NeedleTask>(config, sources, where);
}

}  // namespace quire
