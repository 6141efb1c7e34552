// RULER's variable tracking: one chain of assignments among lines that say nothing, behind a worked example.
#include "core/check.h"
#include "data/tasks/question.h"
#include "data/tasks/question_parts.h"

namespace quire {

namespace {

constexpr std::string_view kBefore =
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n";
constexpr std::string_view kAfter =
    "\nQuestion: Find all variables that are assigned the value VALUE in the text above. Answer: According to the "
    "chain(s) of variable assignment in the text above, 5 variables are assigned the value VALUE, they are:";
constexpr int64_t kVariables = 5;

class VariableQuestion : public QuestionKind {
 public:
  int64_t min_units() const override { return 0; }
  bool reads_background() const override { return false; }
  int64_t reserve() const override { return 30; }

  // The names of the example have three letters, so that none is one of the question.
  Question make(const DocumentKey& key, const QuestionSize& size, BackgroundText& background) const override {
    const Question example = worked_example(key, size.small, background);
    Question question = chain(key, "data.tasks.vt", 5, size.units);
    question.prompt = example.prompt + example.answer + "\n" + question.prompt;
    return question;
  }

 private:
  // Returns a question with its answer in at most 500 tokens, as published, the reserve included.
  Question worked_example(const DocumentKey& key, bool small, const BackgroundText& background) const {
    const auto example = [&](int64_t lines) { return chain(key, "data.tasks.vt_example", 3, lines); };
    int64_t lines = 0;
    while (!small && background.tokens_of(example(lines + 1).prompt) + reserve() <= 500) ++lines;
    return example(lines);
  }

  static Question chain(const DocumentKey& key, std::string_view use, int64_t letters, int64_t lines) {
    TaskRandom random(key, use);
    const std::string value = drawn_number(5, random);
    std::set<std::string> used;
    Question question;
    std::vector<std::string> facts;
    for (int64_t i = 0; i < kVariables; ++i) {
      const std::string name = unused(used, [&] { return drawn_letters(letters, 'A', random); });
      facts.push_back(i == 0 ? fmt::format("VAR {} = {}", name, value)
                             : fmt::format("VAR {} = VAR {}", name, question.references.back()));
      question.references.push_back(name);
    }
    const std::vector<std::string> noise(static_cast<size_t>(lines), std::string(kNoiseLine));
    const std::vector<int64_t> places = drawn_places(kVariables, lines + 1, random);
    question.prompt = std::string(kBefore) + interleaved(noise, facts, places, "\n");
    question.prompt += with(std::string(kAfter), "VALUE", value);
    question.answer = fmt::format(" {}", joined(question.references, " "));
    return question;
  }
};

}  // namespace

std::unique_ptr<QuestionKind> make_variable_question() {
  return std::make_unique<VariableQuestion>();
}

}  // namespace quire
