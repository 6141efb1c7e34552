// Tests the tasks of RULER and bAbI: each answer is found again in the text by rules that know nothing of how it was
// made.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "data/sources/utf8.h"
#include "data/tasks/make_task.h"
#include "data/tasks/question.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/expect_error.h"

namespace quire {
namespace {

using Words = std::vector<std::string>;

// The parts of a document that asks something.
struct Asked {
  std::string prompt;
  std::string answer;
  int64_t reserve = 0;
};

std::string text_of(const TaskDocument& document, int64_t begin, int64_t end, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids(static_cast<size_t>(end - begin));
  document.tokens(begin, end - begin, ids.data());
  return tokenizer.decode(ids);
}

class QuestionsTest : public testing::Test {
 protected:
  std::unique_ptr<AskingTask> task(const std::string& name, int64_t length, uint64_t seed = 5) const {
    TaskConfig config{.task = name, .length = length};
    return make_asking_task(config, {tokenizer_, *filler_, seed, 0}, "here");
  }
  Asked asked(const std::string& name, int64_t length, int64_t index) const {
    const auto document = task(name, length)->ask(index);
    return {text_of(*document, 0, document->answer_begin(), tokenizer_), tokenizer_.decode(document->answer()),
            document->reserve()};
  }

  ByteTokenizer tokenizer_;
  std::unique_ptr<Filler> filler_ = make_prose_filler(tokenizer_);
};

Words found(const std::string& text, const std::string& pattern, size_t group = 1) {
  Words words;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) words.push_back((*it)[group]);
  return words;
}

std::string listed(const Words& words) {
  if (words.size() == 1) return words[0];
  return fmt::format("{}, and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

TEST_F(QuestionsTest, NeedlesAreFoundUnderTheirKeys) {
  struct Case {
    std::string name;
    size_t needles;
    size_t answers;
    std::string kind;
    std::string value;
  };
  const std::string number = "[1-9][0-9]{6}";
  const std::string uuid = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}";
  for (const Case& c :
       {Case{"niah_single_1", 1, 1, "number", number}, Case{"niah_single_2", 1, 1, "number", number},
        Case{"niah_single_3", 1, 1, "uuid", uuid}, Case{"niah_multikey_1", 4, 1, "number", number},
        Case{"niah_multikey_2", 0, 1, "number", number}, Case{"niah_multikey_3", 0, 1, "uuid", uuid},
        Case{"niah_multivalue", 4, 4, "numbers", number}, Case{"niah_multiquery", 4, 4, "numbers", number}}) {
    std::set<std::string> answers;
    for (int64_t index = 0; index < 5; ++index) {
      const auto [prompt, answer, reserve] = asked(c.name, 3000, index);
      EXPECT_EQ(reserve, 128);
      const bool one = c.answers == 1;
      EXPECT_TRUE(prompt.starts_with(one ? "A special magic " + c.kind + " is hidden within the following text. "
                                         : "Some special magic numbers are hidden within the following text. "));
      const std::string end = "mentioned in the provided text";
      const size_t question = prompt.find(one ? "\nWhat is the special magic " : "\nWhat are all the special magic ");
      const std::string asked_for = prompt.substr(question);
      EXPECT_TRUE(prompt.ends_with(end + (one ? " is" : " are")));
      const Words needles = found(prompt, "One of the special magic [a-z]+ for ([^ ]+) is: ");
      if (c.needles > 0) {
        EXPECT_EQ(needles.size(), c.needles);
      } else {
        EXPECT_GT(needles.size(), 15U);  // the haystack consists of them,
        EXPECT_EQ(std::set<std::string>(needles.begin(), needles.end()).size(), needles.size());  // all different
      }
      Words values;
      for (const std::string& key : found(asked_for.substr(0, asked_for.find('?')), "([a-z0-9]+-[a-z0-9-]+)")) {
        for (std::string& value : found(prompt, " for " + key + " is: (" + c.value + ")\\.")) values.push_back(value);
      }
      Words given = found(answer, "(" + c.value + ")");
      EXPECT_EQ(answer, " " + listed(given) + ".");
      EXPECT_EQ(values, given);  // in the order of the text, and of the keys in the question
      EXPECT_EQ(values.size(), c.answers);
      answers.insert(answer);
    }
    EXPECT_EQ(answers.size(), 5U);
  }
  const std::string noise = asked("niah_single_1", 1024, 0).prompt;
  EXPECT_NE(
      noise.find("afterwards.\nThe grass is green. The sky is blue. The sun is yellow. Here we go. There and back "
                 "again.\n"),
      std::string::npos);
}

TEST_F(QuestionsTest, VariablesAreTracked) {
  for (int64_t index = 0; index < 10; ++index) {
    const auto [prompt, answer, reserve] = asked("vt", 1400, index);
    EXPECT_EQ(reserve, 30);
    const size_t question = prompt.rfind("Memorize and track");
    const auto solve = [](const std::string& text) {
      std::map<std::string, std::string> values;
      Words names;
      for (const std::string& fact : found(text, "\n(VAR [A-Z]+ = [A-Z0-9 ]+)")) {
        const Words parts = found(fact, "([A-Z]{3,}|[0-9]+)");
        EXPECT_EQ(parts.size() - (fact.find("VAR", 3) != std::string::npos ? 2U : 1U), 2U) << fact;
        const std::string name = parts[1];
        values[name] = values.count(parts.back()) != 0 ? values[parts.back()] : parts.back();
        names.push_back(name);
      }
      const std::string value = found(text, "assigned the value ([0-9]{5}) in the text")[0];
      std::string solved;
      for (const std::string& name : names) {
        if (values[name] == value) solved += " " + name;
      }
      return solved;
    };
    EXPECT_EQ(solve(prompt.substr(question)), answer);
    EXPECT_EQ(answer.size(), 30U);
    // The example before it has names of three letters, and its answer.
    const std::string example = prompt.substr(0, question);
    EXPECT_TRUE(example.ends_with("they are:" + solve(example) + "\n"));
    EXPECT_EQ(solve(example).size(), 20U);
    EXPECT_TRUE(prompt.ends_with("they are:"));
  }
}

std::map<std::string, int64_t> counted(const Words& words) {
  std::map<std::string, int64_t> counts;
  for (const std::string& word : words) ++counts[word];
  return counts;
}

TEST_F(QuestionsTest, CommonWordsHaveThePublishedFrequency) {
  for (const auto& [length, often, seldom] : {std::tuple{3000, 6, 1}, {16000, 30, 3}}) {
    const auto [prompt, answer, reserve] = asked("cwe", length, 3);
    EXPECT_GE(reserve, 120);
    const std::string list = prompt.substr(prompt.rfind("Below is a numbered list"));
    std::set<std::string> common;
    for (const auto& [word, count] : counted(found(list, "[0-9]+\\. ([a-z]+)"))) {
      if (count == often) common.insert(word);
      EXPECT_TRUE(count == often || count == seldom) << word;
    }
    const Words given = found(answer, " [0-9]+\\. ([a-z]+)");
    EXPECT_EQ(given.size(), 10U);
    EXPECT_EQ(std::set<std::string>(given.begin(), given.end()), common);
    EXPECT_TRUE(answer.starts_with(" 1. "));
    const auto place = [&](const std::string& word) { return list.find(". " + word + " "); };
    EXPECT_TRUE(std::is_sorted(given.begin(), given.end(),
                               [&](const std::string& a, const std::string& b) { return place(a) < place(b); }));
  }
  // The smaller numbers are used when the published ones have no room.
  EXPECT_EQ(counted(found(asked("cwe", 4200, 0).answer, "([0-9]+)\\. ")).size(), 10U);
}

// With n words of the text, rank k appears floor(6 n / (pi k)^2) times.
TEST_F(QuestionsTest, FrequentWordsHaveRanksTwoToFour) {
  const auto [prompt, answer, reserve] = asked("fwe", 4000, 1);
  EXPECT_EQ(reserve, 50);
  const size_t begin = prompt.find("coded words. ") + 13;
  const std::string coded = prompt.substr(begin, prompt.find("\nQuestion") - begin);
  std::vector<std::pair<int64_t, std::string>> ranks;
  for (const auto& [word, count] : counted(found(coded, "([a-z.]+)"))) ranks.emplace_back(-count, word);
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks[0].second, "...");
  EXPECT_EQ(answer, " " + listed({ranks[1].second, ranks[2].second, ranks[3].second}) + ".");
  const double n = static_cast<double>(-ranks[0].first) * 1.6449340668482264;
  for (int64_t k = 2; k < 6; ++k) {
    const double expected = n / (static_cast<double>(k * k) * 1.6449340668482264);
    EXPECT_NEAR(static_cast<double>(-ranks[static_cast<size_t>(k - 1)].first), expected, 1.3) << k;
  }
  EXPECT_EQ(ranks[1].second.size(), 6U);
}

// Reads the facts of a story and answers its question.
class Witness {
 public:
  explicit Witness(const std::string& text) {
    const std::regex fact(
        "(John|Mary|Sandra|Daniel|Bill|Fred|Jeff) (went to|journeyed to|travelled to|moved to|went back to|got|took|"
        "grabbed|picked up|dropped|put down|left|gave|passed|handed) the (\\w+)( there| to (\\w+))?\\.");
    for (std::sregex_iterator it(text.begin(), text.end(), fact), end; it != end; ++it) see(*it);
    const std::regex place("The (\\w+) is (north|south|east|west) of the (\\w+)\\.");
    for (std::sregex_iterator it(text.begin(), text.end(), place), end; it != end; ++it) {
      beside_[{(*it)[2], (*it)[3]}] = (*it)[1];
      beside_[{opposite((*it)[2]), (*it)[1]}] = (*it)[3];
    }
  }
  int64_t facts() const { return facts_; }

  std::string answer(const std::string& question) {
    std::smatch m;
    if (std::regex_match(question, m, std::regex("Where is ([A-Z]\\w+)\\?"))) return at_[m[1]];
    if (std::regex_match(question, m, std::regex("Where is the (\\w+)\\?"))) return been_[m[1]].back();
    if (std::regex_match(question, m, std::regex("Where was the (\\w+) before the (\\w+)\\?"))) {
      const Words& been = been_[m[1]];
      EXPECT_EQ(been.back(), m[2]);
      return been[been.size() - 2];
    }
    if (std::regex_match(question, m, std::regex("What is (\\w+) of the (\\w+)\\?"))) return beside_[{m[1], m[2]}];
    if (std::regex_match(question, m, std::regex("What is the (\\w+) (\\w+) of\\?"))) {
      return beside_[{opposite(m[2]), m[1]}];
    }
    if (std::regex_match(question, m, std::regex("Who gave the (\\w+)( to \\w+)?\\?"))) return gift(m[1], "").from;
    if (std::regex_match(question, m, std::regex("Who received the (\\w+)\\?"))) return gift(m[1], "").to;
    if (std::regex_match(question, m, std::regex("Who did (\\w+) give the (\\w+) to\\?"))) return gift(m[2], m[1]).to;
    if (std::regex_match(question, m, std::regex("What did (\\w+) give to (\\w+)\\?"))) {
      for (const Gift& gift : gifts_) {
        if (gift.from == m[1] && gift.to == m[2]) return gift.what;
      }
    }
    return "";
  }

 private:
  struct Gift {
    std::string from;
    std::string what;
    std::string to;
  };
  Gift gift(const std::string& what, const std::string& from) const {
    for (const Gift& gift : gifts_) {
      if (gift.what == what && (from.empty() || gift.from == from)) return gift;
    }
    return {};
  }
  static std::string opposite(const std::string& direction) {
    return direction == "north" ? "south" : direction == "south" ? "north" : direction == "east" ? "west" : "east";
  }

  void see(const std::smatch& m) {
    ++facts_;
    const std::string who = m[1];
    const std::string verb = m[2];
    const std::string what = m[3];
    if (verb.ends_with(" to")) {
      EXPECT_NE(at_[who], what);
      at_[who] = what;
      for (const auto& [thing, holder] : holder_) {
        if (holder == who) been_[thing].push_back(what);
      }
    } else if (verb == "gave" || verb == "passed" || verb == "handed") {
      EXPECT_EQ(holder_[what], who);
      EXPECT_NE(who, m[5]);
      gifts_.push_back({who, what, m[5]});
      holder_[what] = m[5];
    } else if (verb == "dropped" || verb == "put down" || verb == "left") {
      EXPECT_EQ(holder_[what], who);
      holder_[what] = "";
    } else {
      EXPECT_EQ(holder_[what], "");
      holder_[what] = who;
      if (been_[what].empty()) been_[what].push_back(at_[who]);
    }
  }

  int64_t facts_ = 0;
  std::map<std::string, std::string> at_;
  std::map<std::string, std::string> holder_;
  std::map<std::string, Words> been_;
  std::map<std::pair<std::string, std::string>, std::string> beside_;
  std::vector<Gift> gifts_;
};

TEST(Witness, WorkedExamples) {
  EXPECT_EQ(Witness("Mary went to the garden. John moved to the office. Mary went back to the kitchen.")
                .answer("Where is Mary?"),
            "kitchen");
  const std::string milk =
      "Mary went to the garden. Mary got the milk there. Mary moved to the hallway. Mary left the milk. Mary went to "
      "the office.";
  EXPECT_EQ(Witness(milk).answer("Where is the milk?"), "hallway");
  EXPECT_EQ(Witness(milk).answer("Where was the milk before the hallway?"), "garden");
  const std::string row = "The office is north of the kitchen. The bathroom is south of the kitchen.";
  EXPECT_EQ(Witness(row).answer("What is north of the kitchen?"), "office");
  EXPECT_EQ(Witness(row).answer("What is the kitchen north of?"), "bathroom");
  EXPECT_EQ(Witness("Fred took the apple. Fred handed the apple to Jeff.").answer("Who received the apple?"), "Jeff");
}

TEST_F(QuestionsTest, StoriesHaveTheAnswersThatAWitnessGives) {
  for (int64_t number = 1; number <= 5; ++number) {
    std::set<std::string> questions;
    for (int64_t index = 0; index < 40; ++index) {
      const auto [prompt, answer, reserve] = asked(fmt::format("babi_{}", number), 1300, index);
      EXPECT_EQ(reserve, 20);
      const size_t at = prompt.find("\nQuestion: ");
      ASSERT_NE(at, std::string::npos);
      EXPECT_TRUE(prompt.ends_with("\nAnswer:"));
      const std::string question = prompt.substr(at + 11, prompt.size() - 8 - at - 11);
      questions.insert(question.substr(0, question.find(' ', 5)));
      EXPECT_EQ(" " + Witness(prompt.substr(0, at)).answer(question) + ".", answer) << prompt;
    }
    EXPECT_GE(questions.size(), number == 5 ? 4U : 1U);
  }
}

TEST(QuestionScore, IsTheShareOfReferencesThatOccur) {
  const Question one{.prompt = "", .answer = "", .references = {"1234567"}};
  EXPECT_EQ(score_of(one, " 1234567."), 1);
  EXPECT_EQ(score_of(one, " it is 91234567 or so"), 1);  // as published
  EXPECT_EQ(score_of(one, " 123456"), 0);
  const Question four{.prompt = "", .answer = "", .references = {"AbCdE", "fghij", "klmno", "pqrst"}};
  EXPECT_EQ(score_of(four, "abcde KLMNO abcde"), 0.5);
  EXPECT_FALSE(is_settled(four, "abcde KLMNO abcde"));
  EXPECT_TRUE(is_settled(four, "abcde fghij klmno pqrst"));
}

TEST(QuestionScore, OfAStoryIsTheOneLabelOfTheFirstSentence) {
  const Question question{.prompt = "",
                          .answer = " garden.",
                          .references = {"garden"},
                          .asked = "Where was the apple before the office?",
                          .labels = {"bathroom", "garden", "kitchen", "office"}};
  EXPECT_EQ(score_of(question, " garden."), 1);
  EXPECT_EQ(score_of(question, " The apple was in the Garden before the office. The kitchen"), 1);
  EXPECT_EQ(score_of(question, " garden or kitchen."), 0);
  EXPECT_EQ(score_of(question, " kitchen. garden"), 0);
  EXPECT_EQ(score_of(question, " office."), 0);
  EXPECT_EQ(score_of(question, ""), 0);
  EXPECT_TRUE(is_settled(question, " garden."));
  EXPECT_FALSE(is_settled(question, " garden"));
}

TEST_F(QuestionsTest, MarksAreThoseOfTheAnswer) {
  for (const char* loss : {"all", "answer"}) {
    const auto config =
        parse_config<TaskConfig>(fmt::format("{{task: niah_multivalue, length: 900, loss: {}}}", loss), "task");
    const auto made = make_task(config, {tokenizer_, *filler_, 5, 0}, "here")->document(0);
    const std::string text = text_of(*made, 0, 899, tokenizer_) + "$";
    std::vector<uint8_t> marks(900);
    made->marks(0, 900, marks.data());
    std::string counted;
    std::string recalled;
    for (size_t i = 0; i < marks.size(); ++i) {
      if ((marks[i] & kCounted) != 0) counted += text[i];
      if ((marks[i] & kRecalled) != 0) recalled += text[i];
    }
    const std::string values = "[0-9]{7}, [0-9]{7}, [0-9]{7}, and [0-9]{7}\\.";
    const std::string all = "A?.* provided text are " + values;
    EXPECT_EQ(found(counted, "(" + values + ")$").size(), 1U) << counted;
    EXPECT_EQ(counted.size() < 60, std::string_view(loss) == "answer");
    EXPECT_EQ(recalled.size(), 28U) << recalled;
    EXPECT_EQ(recalled.find_first_not_of("0123456789"), std::string::npos);
  }
}

TEST_F(QuestionsTest, WhatCannotBeAskedIsRefused) {
  EXPECT_ERROR(task("niah_single_2", 300), ErrorKind::config, "here: length 300 is too short for task niah_single_2");
  EXPECT_ERROR(task("cwe", 1000), ErrorKind::config, "too short for task cwe");
  for (const char* text : {"{task: niah_single_4}", "{task: babi_6}", "{task: babi}"}) {
    EXPECT_ERROR(parse_config<TaskConfig>(text, "task"), ErrorKind::config, "is no task; there is: passkey");
  }
  EXPECT_ERROR(parse_config<TaskConfig>("{task: vt, key: 3}", "task"), ErrorKind::config, "what was published");
  const auto spaces = make_text_filler(std::vector<int32_t>(10, ' '));
  const auto made = make_asking_task({.task = "babi_1", .length = 900}, {tokenizer_, *spaces, 5, 0}, "here");
  EXPECT_ERROR(made->ask(0), ErrorKind::data, "has no words");
}

TEST_F(QuestionsTest, FillerConsistsOfWholeCharacters) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < 40; ++i) tokenizer_.encode("\xE5\x9C\x8B\xC3\xA9\xF0\x9F\x98\x80. ", ids);
  const auto filler = make_text_filler(ids);
  for (const int64_t align : {1, 16}) {
    const TaskConfig config{.task = "niah_single_2", .length = 800, .align = align};
    const auto made = make_task(config, {tokenizer_, *filler, 5, 0}, "here");
    for (int64_t index = 0; index < 20; ++index) {
      const auto document = made->document(index);
      ASSERT_EQ(document->length(), 799);
      const std::string text = text_of(*document, 0, 799, tokenizer_);
      Utf8Validator validator;
      EXPECT_FALSE(validator.feed(text)) << text;
      EXPECT_FALSE(validator.finish()) << text;
    }
  }
}

TEST_F(QuestionsTest, BackgroundIsTheTextInWholeSentences) {
  const std::string text = "Ends here. \"Is it\n so?\" Yes.  A  long\ttail ";
  std::vector<int32_t> ids;
  tokenizer_.encode(text, ids);
  const auto filler = make_text_filler(ids);
  const auto opened = filler->open({.seed = 1, .task = 0, .index = 0});
  BackgroundText background(*opened, tokenizer_);
  const std::vector<std::string> sentences = background.sentences(12);
  const Words cycle{"\"Is it so?\"", "Yes.", "A long tail Ends here."};
  const auto begin = std::find(cycle.begin(), cycle.end(), sentences[0]) - cycle.begin();
  ASSERT_LT(begin, 3);
  EXPECT_EQ(sentences[1], cycle[static_cast<size_t>(begin + 1) % 3]);
  EXPECT_EQ(sentences[2], cycle[static_cast<size_t>(begin + 2) % 3]);
}

}  // namespace
}  // namespace quire
