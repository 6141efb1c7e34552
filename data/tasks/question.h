// A question about a text, with its answer: the tasks of RULER (Hsieh et al. 2024) that need no download, and bAbI's
// (Weston et al. 2015) in other text, as in BABILong (Kuratov et al. 2024). data/TASKS.md describes each.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tasks/background.h"
#include "data/tasks/task_random.h"

namespace quire {

struct Question {
  std::string prompt;                   // ends with the beginning of the sentence that answers
  std::string answer;                   // begins with a space
  std::vector<std::string> references;  // are compared with a reply; parts of the answer, in its order
  // Only of bAbI: the question itself, and everything that may answer one of its kind, in lower case.
  std::string asked = {};
  std::vector<std::string> labels = {};
};

struct QuestionSize {
  int64_t length = 0;  // of the document, in positions: some tasks depend on it
  int64_t units = 0;   // of what is around the facts: words of background, lines, or words of a list
  bool small = false;  // for a length in which the published numbers have no room
};

class QuestionKind {
 public:
  virtual ~QuestionKind() = default;
  // Makes a question. What is asked depends on the key alone; more units make the prompt longer.
  virtual Question make(const DocumentKey& key, const QuestionSize& size, BackgroundText& background) const = 0;
  virtual int64_t min_units() const = 0;
  virtual bool reads_background() const = 0;  // whether make() does
  // Returns the published number of tokens that are kept for the reply.
  virtual int64_t reserve() const = 0;
};

// Return the names of the tasks, and the kind with a name; nullptr when there is none.
std::vector<std::string_view> question_names();
bool is_question(std::string_view name);
std::unique_ptr<QuestionKind> make_question_kind(std::string_view name);

// The families, for make_question_kind().
std::unique_ptr<QuestionKind> make_needle_question(std::string_view name);  // niah_*
std::unique_ptr<QuestionKind> make_variable_question();                     // vt
std::unique_ptr<QuestionKind> make_common_words_question();                 // cwe
std::unique_ptr<QuestionKind> make_frequent_words_question();               // fwe
std::unique_ptr<QuestionKind> make_story_question(int64_t number);          // babi_1 to babi_5

// Returns the published score of a reply, from 0 to 1: the share of the references that occur in it, ignoring case.
// With labels: 1 when the labels in its first sentence, without those in the question, are the reference alone.
double score_of(const Question& question, std::string_view reply);
// Returns whether the score stays the same however the reply goes on.
bool is_settled(const Question& question, std::string_view reply);

}  // namespace quire
