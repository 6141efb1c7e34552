// RULER's common words, of a numbered list, and frequent words, of a coded text.
#include <algorithm>

#include "core/check.h"
#include "data/tasks/prose.h"
#include "data/tasks/question.h"
#include "data/tasks/question_parts.h"

namespace quire {

namespace {

constexpr std::string_view kListBefore =
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
    "appear most often.\n";
constexpr std::string_view kListAfter =
    "\nQuestion: What are the 10 most common words in the above list? Answer: The top 10 words that appear most often "
    "in the list are:";
constexpr std::string_view kCodedBefore =
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared "
    "coded words. ";
constexpr std::string_view kCodedAfter =
    "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three most frequently "
    "appeared words in the above coded text? Answer: According to the coded text above, the three most frequently "
    "appeared words are:";

std::string numbered(const std::vector<std::string>& words) {
  std::vector<std::string> entries;
  for (size_t i = 0; i < words.size(); ++i) entries.push_back(std::to_string(i + 1) + ". " + words[i]);
  return joined(entries, " ");
}

// A unit is a word of the list.
class CommonWords : public QuestionKind {
 public:
  int64_t min_units() const override { return kCommon + 1; }
  bool reads_background() const override { return false; }
  int64_t reserve() const override { return 120; }

  Question make(const DocumentKey& key, const QuestionSize& size, BackgroundText& background) const override {
    static_cast<void>(background);
    const bool small = size.small || size.length < 4096;
    const Question example =
        small ? list(key, "data.tasks.cwe_example", 20, 3, 1) : list(key, "data.tasks.cwe_example", 40, 10, 3);
    Question question =
        small ? list(key, "data.tasks.cwe", size.units, 6, 1) : list(key, "data.tasks.cwe", size.units, 30, 3);
    question.prompt = example.prompt + example.answer + "\n" + question.prompt;
    return question;
  }

 private:
  static constexpr int64_t kCommon = 10;

  static Question list(const DocumentKey& key, std::string_view use, int64_t words, int64_t often, int64_t seldom) {
    TaskRandom random(key, use);
    std::set<std::string> used;
    std::vector<std::string> entries;
    Question question;
    for (int64_t i = 0; i < words; ++i) {
      const std::string word = unused(used, [&] { return made_up_word(random); });
      if (i < kCommon) question.references.push_back(word);
      entries.insert(entries.end(), static_cast<size_t>(i < kCommon ? often : seldom), word);
    }
    shuffle(entries, random);
    order_by(question.references, entries, [](const std::string& word) { return word; });
    question.prompt = std::string(kListBefore) + numbered(entries) + std::string(kListAfter);
    question.answer = fmt::format(" {}", numbered(question.references));
    return question;
  }
};

// A unit is a word of the text. With fewer than 74 the ranks 3 to 5 may be equally frequent:
// n (1/16 - 1/25) / zeta(2) is below 1.
class FrequentWords : public QuestionKind {
 public:
  int64_t min_units() const override { return 74; }
  bool reads_background() const override { return false; }
  int64_t reserve() const override { return 50; }

  Question make(const DocumentKey& key, const QuestionSize& size, BackgroundText& background) const override {
    static_cast<void>(background);
    constexpr double kZeta = 1.6449340668482264;  // of 2
    TaskRandom random(key, "data.tasks.fwe");
    std::set<std::string> used;
    std::vector<std::string> entries;
    Question question;
    for (int64_t rank = 1; rank <= std::max<int64_t>(size.length / 50, 5); ++rank) {
      const double share = 1 / (static_cast<double>(rank * rank) * kZeta);
      const auto times = static_cast<size_t>(static_cast<double>(size.units) * share);
      if (times == 0) break;
      const std::string word = rank == 1 ? "..." : unused(used, [&] { return drawn_letters(6, 'a', random); });
      if (rank >= 2 && rank <= 4) question.references.push_back(word);
      entries.insert(entries.end(), times, word);
    }
    TaskRandom order(key, "data.tasks.fwe_order");
    shuffle(entries, order);
    question.prompt = std::string(kCodedBefore) + joined(entries, " ") + std::string(kCodedAfter);
    question.answer = fmt::format(" {}.", listed(question.references));
    return question;
  }
};

}  // namespace

std::unique_ptr<QuestionKind> make_common_words_question() {
  return std::make_unique<CommonWords>();
}

std::unique_ptr<QuestionKind> make_frequent_words_question() {
  return std::make_unique<FrequentWords>();
}

}  // namespace quire
