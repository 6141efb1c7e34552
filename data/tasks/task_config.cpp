#include "data/tasks/task_config.h"

#include <algorithm>
#include <charconv>

#include "data/tasks/question.h"

namespace quire {

namespace {

constexpr int64_t kSigns = 3;

constexpr std::string_view kHops = "hops:";

// Returns the number after "hops:"; 0 when that is no number from 1 to 16.
int64_t parse_hops(std::string_view text) {
  int64_t hops = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hops);
  return error == std::errc() && end == text.data() + text.size() && hops >= 1 && hops <= 16 ? hops : 0;
}

std::string names_of_questions() {
  std::string names;
  for (const std::string_view name : question_names()) names.append(", ").append(name);
  return names;
}

}  // namespace

std::optional<TaskKind> TaskConfig::kind() const {
  if (!task) return std::nullopt;
  if (*task == "passkey") return TaskKind::passkey;
  if (*task == "multikey") return TaskKind::multikey;
  if (*task == "recall") return TaskKind::recall;
  if (is_question(*task)) return TaskKind::question;
  if (task->starts_with(kHops) && hops() > 0) return TaskKind::hops;
  return std::nullopt;
}

int64_t TaskConfig::hops() const {
  return task && task->starts_with(kHops) ? parse_hops(std::string_view(*task).substr(kHops.size())) : 0;
}

void TaskConfig::check(ConfigChecker& c) const {
  if (!task) return;
  c.require(kind().has_value(), "task",
            "\"" + *task + "\" is no task; there is: passkey, multikey, hops:N (N from 1 to 16), recall" +
                names_of_questions());
  c.require(!shortest || *shortest <= length, "shortest", "must not be above length");
  c.require(length % align == 0, "length", "is not a multiple of align");
  c.require(!shortest || *shortest % align == 0, "shortest", "is not a multiple of align");
  if (*kind() != TaskKind::recall) return;
  c.require(nearest <= farthest, "farthest", "must not be below nearest");
  c.require(!kinds.empty(), "kinds", "needs at least one kind of fact");
  c.require(facts <= kSigns || std::find(kinds.begin(), kinds.end(), FactKind::signs) == kinds.end(), "facts",
            "must not be above 3 with signs, of which there are so many");
}

}  // namespace quire
