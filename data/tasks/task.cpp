#include "data/tasks/task.h"

#include <cmath>

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

}  // namespace quire
