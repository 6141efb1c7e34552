#include "data/tasks/recall_task.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>

#include "core/check.h"
#include "data/tasks/prose.h"

namespace quire {

namespace {

// A whole document; every target counts.
class RecallDocument : public TaskDocument {
 public:
  RecallDocument(std::vector<int32_t> ids, std::vector<uint8_t> marks, double chance)
      : ids_(std::move(ids)), marks_(std::move(marks)), chance_(chance) {}
  int64_t length() const override { return static_cast<int64_t>(ids_.size()); }
  void tokens(int64_t begin, int64_t count, int32_t* out) const override {
    std::copy_n(ids_.begin() + begin, count, out);
  }
  void marks(int64_t begin, int64_t count, uint8_t* out) const override {
    std::copy_n(marks_.begin() + begin, count, out);
  }
  std::optional<double> chance() const override { return chance_; }

 private:
  std::vector<int32_t> ids_;
  std::vector<uint8_t> marks_;
  double chance_;
};

struct Fact {
  std::string before;       // ends with the word that the value follows
  RecallValue value;        // the text to be remembered
  std::string after;        // text after the value; empty: none
  std::string space = " ";  // before the value
  int64_t said = 0;         // where the value was last written
  int64_t due = 0;          // where it comes back next
  int64_t left = 0;         // remaining mentions
};

// Writes one document from its beginning to its end.
class Writer {
 public:
  Writer(const TaskConfig& config, const Tokenizer& tokenizer, const DocumentKey& key,
         std::unique_ptr<FillerText> filler, RecallGuess& guess)
      : config_(config),
        tokenizer_(tokenizer),
        random_(key, "data.tasks.recall"),
        filler_(std::move(filler)),
        guess_(guess) {}

  std::unique_ptr<RecallDocument> write(int64_t length) {
    while (place() < length) {
      const auto next =
          std::min_element(facts_.begin(), facts_.end(), [](const Fact& a, const Fact& b) { return a.due < b.due; });
      // New facts start one by one, so that their mentions do not coincide.
      if (static_cast<int64_t>(facts_.size()) < config_.facts && random_.below(3) == 0) {
        facts_.push_back(new_fact());
        say(facts_.back(), false);
      } else if (next != facts_.end() && next->due <= place()) {
        say(*next, true);
        if (next->left == 0) facts_.erase(next);
      } else {
        filler_->passage(random_, ids_);
      }
      marks_.resize(ids_.size(), kCounted);
    }
    ids_.resize(static_cast<size_t>(length));
    marks_.resize(ids_.size());
    marks_.push_back(kCounted);
    // Cutting the document to its length may have removed some recalled targets.
    guesses_.resize(static_cast<size_t>(std::count(marks_.begin(), marks_.end(), kCounted | kRecalled)));
    const double chance = std::accumulate(guesses_.begin(), guesses_.end(), 0.0);
    return std::make_unique<RecallDocument>(std::move(ids_), std::move(marks_), chance);
  }

 private:
  int64_t place() const { return static_cast<int64_t>(ids_.size()); }

  // Returns a word that no other fact of the document has, so that only one value can follow it.
  std::string new_word() {
    for (;;) {
      std::string word = made_up_word(random_);
      if (words_.insert(word).second) return word;
      // Practically never reached: documents long enough to run out of words use longer ones.
      word += made_up_word(random_);
      if (words_.insert(word).second) return word;
    }
  }

  Fact new_fact() {
    const FactKind kind = random_.one_of(config_.kinds);
    if (kind == FactKind::signs) return new_sign();
    RecallValue value = draw_value(kind, {}, random_);
    const std::string word = new_word();
    switch (kind) {
      case FactKind::names:
        return fact(capitalised(word), std::move(value), " ");
      case FactKind::numbers:
        return fact(fmt::format("{} (", capitalised(word)), std::move(value), ") ", "");
      default:
        return fact(fmt::format("The {}, that", word), std::move(value), ", ");
    }
  }

  // Each sign has its own set of symbols.
  Fact new_sign() {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kSigns{
        {{"number", "0123456789"}, {"letter", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, {"mark", "+*/=%&#@$!"}}};
    for (;;) {
      const auto& [name, symbols] = random_.one_of(kSigns);
      if (!words_.insert(std::string(name)).second) continue;
      Fact sign = fact(std::string(name), draw_value(FactKind::signs, symbols, random_), "");
      sign.left = std::numeric_limits<int64_t>::max();
      return sign;
    }
  }

  Fact fact(const std::string& before, RecallValue value, const std::string& after,
            const std::string& space = " ") const {
    return {.before = before, .value = std::move(value), .after = after, .space = space, .left = config_.mentions};
  }

  void say(Fact& fact, bool again) {
    tokenizer_.encode(fact.before, ids_);
    marks_.resize(ids_.size(), kCounted);
    const bool recalled = again && place() - fact.said >= config_.nearest;
    fact.said = place();
    tokenizer_.encode(fact.space + fact.value.text, ids_);
    size_t known = 0;  // characters of the value before token i, and the spaces that follow them
    for (size_t i = marks_.size(); i < ids_.size(); ++i) {
      const std::string text = tokenizer_.decode({&ids_[i], 1});
      // A space can be predicted without remembering anything, so it is not recalled.
      const bool counts = recalled && text != " ";
      marks_.push_back(counts ? kCounted | kRecalled : kCounted);
      if (counts) guesses_.push_back(guess_.right(fact.value, fact.value.text.substr(0, known)));
      for (const char c : text) {
        if (c == ' ') continue;  // tokenizers differ in whether they write the space
        ++known;
        while (known < fact.value.text.size() && fact.value.text[known] == ' ') ++known;
      }
    }
    tokenizer_.encode(fact.after.empty() ? "; " : fmt::format("{}{}. ", fact.after, prose_deed(random_)), ids_);
    if (again) --fact.left;
    const bool near = random_.uniform() < config_.near_share;
    const int64_t from = near ? 0 : config_.nearest;
    const int64_t to = near ? config_.nearest / 8 : config_.farthest;
    fact.due = fact.said + from + random_.below(to - from + 1);
  }

  const TaskConfig& config_;
  const Tokenizer& tokenizer_;
  TaskRandom random_;
  std::unique_ptr<FillerText> filler_;
  RecallGuess& guess_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> marks_;
  std::vector<double> guesses_;  // one per recalled target, in order
  std::vector<Fact> facts_;
  std::set<std::string> words_;
};

}  // namespace

RecallTask::RecallTask(const TaskConfig& config, const TaskSources& sources, const std::string& where)
    : Task(config, sources.seed, sources.number), tokenizer_(sources.tokenizer), filler_(sources.filler) {
  const std::string all = " abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ (0123456789), .";
  std::vector<int32_t> ids;
  tokenizer_.encode(all, ids);
  if (tokenizer_.decode(ids) != all) {
    fail(ErrorKind::config, "{}: the tokenizer ({}) cannot write the facts: \"{}\" becomes \"{}\"", where,
         tokenizer_.kind(), all, tokenizer_.decode(ids));
  }
  const int64_t shortest = config.shortest.value_or(config.length);
  if (shortest <= config.nearest) {
    fail(ErrorKind::config, "{}: length {} is too short for task recall, whose facts come back after {} tokens", where,
         shortest, config.nearest);
  }
}

std::unique_ptr<TaskDocument> RecallTask::document(int64_t index) const {
  const DocumentKey key = key_of(index);
  return Writer(config_, tokenizer_, key, filler_.open(key), guess_).write(positions(index) - 1);
}

}  // namespace quire
