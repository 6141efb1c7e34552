#include "data/tasks/question.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/check.h"

namespace quire {

namespace {

constexpr auto kNames = std::to_array<std::string_view>(
    {"niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
     "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "babi_1", "babi_2", "babi_3", "babi_4", "babi_5"});

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool occurs(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

std::vector<std::string_view> question_names() {
  return {kNames.begin(), kNames.end()};
}

bool is_question(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::unique_ptr<QuestionKind> make_question_kind(std::string_view name) {
  if (!is_question(name)) return nullptr;
  if (name == "vt") return make_variable_question();
  if (name == "cwe") return make_common_words_question();
  if (name == "fwe") return make_frequent_words_question();
  if (name.starts_with("babi_")) return make_story_question(name.back() - '0');
  return make_needle_question(name);
}

double score_of(const Question& question, std::string_view reply) {
  if (question.labels.empty()) {
    const std::string text = lower(reply);
    const auto found = std::count_if(question.references.begin(), question.references.end(),
                                     [&](const std::string& reference) { return occurs(text, lower(reference)); });
    return static_cast<double>(found) / static_cast<double>(question.references.size());
  }
  const std::string sentence = lower(reply.substr(0, reply.find('.')));
  const std::string asked = lower(question.asked);
  std::set<std::string> said;
  for (const std::string& label : question.labels) {
    if (occurs(sentence, label) && !occurs(asked, label)) said.insert(label);
  }
  return said == std::set<std::string>{lower(question.references.front())} ? 1 : 0;
}

bool is_settled(const Question& question, std::string_view reply) {
  if (question.labels.empty()) return score_of(question, reply) == 1;
  return reply.find('.') != std::string_view::npos;
}

}  // namespace quire
