// RULER's needles in a haystack.
#include <array>

#include "core/check.h"
#include "data/tasks/question.h"
#include "data/tasks/question_parts.h"

namespace quire {

namespace {

enum class Haystack { noise, essay, needles };

struct Form {
  std::string_view name;
  Haystack haystack;
  bool uuid_keys;
  bool uuid_values;
  int64_t keys;    // how many are hidden,
  int64_t values;  // of each key
  int64_t asked;   // keys that are asked for
};

constexpr auto kForms = std::to_array<Form>({{"niah_single_1", Haystack::noise, false, false, 1, 1, 1},
                                             {"niah_single_2", Haystack::essay, false, false, 1, 1, 1},
                                             {"niah_single_3", Haystack::essay, false, true, 1, 1, 1},
                                             {"niah_multikey_1", Haystack::essay, false, false, 4, 1, 1},
                                             {"niah_multikey_2", Haystack::needles, false, false, 1, 1, 1},
                                             {"niah_multikey_3", Haystack::needles, true, true, 1, 1, 1},
                                             {"niah_multivalue", Haystack::essay, false, false, 1, 4, 1},
                                             {"niah_multiquery", Haystack::essay, false, false, 4, 1, 4}});

constexpr std::string_view kNeedle = "One of the special magic KIND for KEY is: VALUE.";
constexpr std::string_view kBefore =
    "Some special magic KIND are hidden within the following text. Make sure to memorize it. I will quiz you about the "
    "KIND afterwards.\n";
constexpr std::string_view kAfter =
    "\nWhat are all the special magic KIND for KEY mentioned in the provided text? The special magic KIND for KEY "
    "mentioned in the provided text are";
constexpr std::string_view kOneBefore =
    "A special magic KIND is hidden within the following text. Make sure to memorize it. I will quiz you about the "
    "KIND afterwards.\n";
constexpr std::string_view kOneAfter =
    "\nWhat is the special magic KIND for KEY mentioned in the provided text? The special magic KIND for KEY mentioned "
    "in the provided text is";
constexpr int64_t kDepths = 40;  // even depths, of which needles in essays have different ones

class NeedleQuestion : public QuestionKind {
 public:
  explicit NeedleQuestion(const Form& form) : form_(form) {}
  int64_t min_units() const override { return reads_background() ? 0 : 1; }
  bool reads_background() const override { return form_.haystack == Haystack::essay; }
  int64_t reserve() const override { return 128; }

  Question make(const DocumentKey& key, const QuestionSize& size, BackgroundText& background) const override {
    TaskRandom random(key, "data.tasks.niah");
    std::set<std::string> keys;
    std::set<std::string> values;
    std::vector<std::string> needles;
    std::vector<std::string> asked;
    Question question;
    for (int64_t i = 0; i < form_.keys; ++i) {
      const std::string name = unused(keys, [&] { return drawn_name(size.units, random); });
      if (i < form_.asked) asked.push_back(name);
      for (int64_t j = 0; j < form_.values; ++j) {
        const std::string value = drawn_value(values, random);
        needles.push_back(needle(name, value));
        if (i < form_.asked) question.references.push_back(value);
      }
    }
    shuffle(needles, random);
    if (form_.values > 1) {  // in the order of the text, which can be learned
      order_by(question.references, needles, [&](const std::string& value) { return needle(asked.front(), value); });
    }
    const bool one = question.references.size() == 1;
    const std::string kind = one ? (form_.uuid_values ? "uuid" : "number") : (form_.uuid_values ? "uuids" : "numbers");
    const auto filled = [&](std::string_view text) {
      return with(with(std::string(text), "KIND", kind), "KEY", listed(asked));
    };
    question.prompt = filled(one ? kOneBefore : kBefore);
    question.prompt += context(key, size.units, needles, keys, values, background);
    question.prompt += filled(one ? kOneAfter : kAfter);
    question.answer = fmt::format(" {}.", listed(question.references));
    return question;
  }

 private:
  std::string drawn_name(int64_t units, TaskRandom& random) const {
    const int64_t needed = form_.keys + (form_.haystack == Haystack::needles ? units : 0);
    return form_.uuid_keys ? drawn_uuid(random) : drawn_key(needed, random);
  }
  std::string drawn_value(std::set<std::string>& values, TaskRandom& random) const {
    return unused(values, [&] { return form_.uuid_values ? drawn_uuid(random) : drawn_number(7, random); });
  }
  std::string needle(const std::string& key, const std::string& value) const {
    const std::string kind = form_.uuid_values ? "uuids" : "numbers";
    return with(with(with(std::string(kNeedle), "KIND", kind), "KEY", key), "VALUE", value);
  }

  std::string context(const DocumentKey& key, int64_t units, const std::vector<std::string>& needles,
                      std::set<std::string>& keys, std::set<std::string>& values, BackgroundText& background) const {
    TaskRandom random(key, "data.tasks.niah_places");
    const auto count = static_cast<int64_t>(needles.size());
    if (form_.haystack == Haystack::essay) {
      const std::vector<std::string> sentences = background.sentences(units);
      std::vector<int64_t> places = drawn_places(count, kDepths, random);
      for (int64_t& place : places) place = place * static_cast<int64_t>(sentences.size()) / (kDepths - 1);
      return interleaved(sentences, needles, places, " ");
    }
    const std::vector<int64_t> places = drawn_places(count, units, random);
    std::vector<std::string> lines(static_cast<size_t>(units), std::string(kNoiseLine));
    if (form_.haystack == Haystack::needles) {
      TaskRandom others(key, "data.tasks.niah_others");
      for (std::string& line : lines) {
        const std::string name = unused(keys, [&] { return drawn_name(units, others); });
        line = needle(name, drawn_value(values, others));
      }
    }
    return interleaved(lines, needles, places, "\n");
  }

  const Form& form_;
};

}  // namespace

std::unique_ptr<QuestionKind> make_needle_question(std::string_view name) {
  for (const Form& form : kForms) {
    if (form.name == name) return std::make_unique<NeedleQuestion>(form);
  }
  return nullptr;
}

}  // namespace quire
