// The values of the facts of task recall, and how well somebody can guess them who did not read them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "data/tasks/task_config.h"
#include "data/tasks/task_random.h"

namespace quire {

struct RecallValue {
  std::string text;
  FactKind kind = FactKind::names;
  std::string_view symbols = {};  // the characters of which the text of a sign is made
};

RecallValue draw_value(FactKind kind, std::string_view symbols, TaskRandom& random);

// Returns the probability that the best guess of a value's next character is right, for a reader who knows the kind,
// the symbols and the first characters, and that the value goes on.
class RecallGuess {
 public:
  double right(const RecallValue& value, std::string_view beginning);

 private:
  std::map<std::pair<std::string, std::string>, double> found_;  // by kind or symbols, and beginning
};

}  // namespace quire
