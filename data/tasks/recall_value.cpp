#include "data/tasks/recall_value.h"

#include <algorithm>

#include "core/check.h"
#include "core/config/config.h"
#include "data/tasks/prose.h"

namespace quire {

namespace {

bool all_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns the probability that a value begins with `beginning`.
double share(const RecallValue& value, const std::string& beginning) {
  if (beginning.empty()) return 1;
  switch (value.kind) {
    case FactKind::names: {
      if (beginning[0] < 'A' || beginning[0] > 'Z') return 0;
      std::string word = beginning;
      word[0] = static_cast<char>(word[0] - 'A' + 'a');
      return made_up_word_share(word);
    }
    case FactKind::numbers: {
      if (beginning.size() > 4 || !all_digits(beginning) || beginning[0] == '0') return 0;
      double probability = 1.0 / 9;
      for (size_t i = 1; i < beginning.size(); ++i) probability /= 10;
      return probability;
    }
    case FactKind::definitions:
      return prose_thing_share(beginning);
    case FactKind::signs:
      if (beginning.size() > 1 || value.symbols.find(beginning[0]) == std::string_view::npos) return 0;
      return 1.0 / static_cast<double>(value.symbols.size());
  }
  fail(ErrorKind::internal, "recall: no kind of fact {}", static_cast<int>(value.kind));
}

// Maps the beginning of a name to a representative of all beginnings with the same continuations, which depend only on
// the number of syllables and on the characters after the last vowel.
std::string same_stage(std::string_view beginning) {
  std::string same;
  for (size_t vowel = beginning.find_first_of("aeiou"); vowel != std::string_view::npos;
       vowel = beginning.find_first_of("aeiou")) {
    same += "ba";
    beginning.remove_prefix(vowel + 1);
  }
  return capitalised(same + std::string(beginning));
}

}  // namespace

RecallValue draw_value(FactKind kind, std::string_view symbols, TaskRandom& random) {
  switch (kind) {
    case FactKind::names:
      return {capitalised(made_up_word(random)), kind};
    case FactKind::numbers:
      return {std::to_string(1000 + random.below(9000)), kind};
    case FactKind::definitions:
      return {prose_thing(random), kind};
    case FactKind::signs:
      return {std::string(1, symbols[static_cast<size_t>(random.below(static_cast<int64_t>(symbols.size())))]), kind,
              symbols};
  }
  fail(ErrorKind::internal, "recall: no kind of fact {}", static_cast<int>(kind));
}

double RecallGuess::right(const RecallValue& value, std::string_view beginning) {
  const std::string kind =
      value.kind == FactKind::signs ? std::string(value.symbols) : std::string(name_in_config(value.kind));
  std::string next = value.kind == FactKind::names ? same_stage(beginning) : std::string(beginning);
  const auto [found, is_new] = found_.try_emplace({kind, next}, 0.0);
  if (!is_new) return found->second;
  double best = 0;
  double sum = 0;
  next += ' ';
  for (char c = ' '; c < '\x7f'; ++c) {
    next.back() = c;
    const double probability = share(value, next);
    best = std::max(best, probability);
    sum += probability;
  }
  QUIRE_CHECK(sum > 0, "recall: no value of kind {} goes on after \"{}\"", kind, beginning);
  return found->second = best / sum;
}

}  // namespace quire
