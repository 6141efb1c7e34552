#include "data/tasks/recall_task.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "core/check.h"
#include "data/tasks/prose.h"

namespace quire {

namespace {

// A whole document; every target counts.
class RecallDocument : public TaskDocument {
 public:
  RecallDocument(std::vector<int32_t> ids, std::vector<uint8_t> marks)
      : ids_(std::move(ids)), marks_(std::move(marks)) {}
  int64_t length() const override { return static_cast<int64_t>(ids_.size()); }
  void tokens(int64_t begin, int64_t count, int32_t* out) const override {
    std::copy_n(ids_.begin() + begin, count, out);
  }
  void marks(int64_t begin, int64_t count, uint8_t* out) const override {
    std::copy_n(marks_.begin() + begin, count, out);
  }

 private:
  std::vector<int32_t> ids_;
  std::vector<uint8_t> marks_;
};

struct Fact {
  std::string before;  // ends with the word that the rest follows from
  std::string value;   // what has to be remembered
  std::string after;   // empty: nothing is told
  int64_t said = 0;    // where the value was last said
  int64_t due = 0;     // where it comes back
  int64_t left = 0;    // mentions to come
};

// Writes one document from its beginning to its end.
class Writer {
 public:
  Writer(const TaskConfig& config, const Tokenizer& tokenizer, const DocumentKey& key,
         std::unique_ptr<FillerText> filler)
      : config_(config), tokenizer_(tokenizer), random_(key, "data.tasks.recall"), filler_(std::move(filler)) {}

  std::unique_ptr<RecallDocument> write(int64_t length) {
    while (place() < length) {
      const auto next =
          std::min_element(facts_.begin(), facts_.end(), [](const Fact& a, const Fact& b) { return a.due < b.due; });
      // New facts come one by one, so that their mentions do not fall together.
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
    return std::make_unique<RecallDocument>(std::move(ids_), std::move(marks_));
  }

 private:
  int64_t place() const { return static_cast<int64_t>(ids_.size()); }

  // A word that no other fact of the document has, so that only one thing can follow it.
  std::string new_word() {
    for (;;) {
      std::string word = made_up_word(random_);
      if (words_.insert(word).second) return word;
      // As good as never: documents long enough to run out of words go on with longer ones.
      word += made_up_word(random_);
      if (words_.insert(word).second) return word;
    }
  }

  Fact new_fact() {
    switch (random_.one_of(config_.kinds)) {
      case FactKind::names:
        return fact(capitalised(new_word()), fmt::format(" {}", capitalised(made_up_word(random_))), " ");
      case FactKind::numbers:
        return fact(fmt::format("{} (", capitalised(new_word())), fmt::format("{}", 1000 + random_.below(9000)), ") ");
      case FactKind::definitions:
        return fact(fmt::format("The {}, that", new_word()), fmt::format(" {}", prose_thing(random_)), ", ");
      case FactKind::signs:
        break;
    }
    return new_sign();
  }

  // What each may say is written in symbols of its own.
  Fact new_sign() {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kSigns{
        {{"number", "0123456789"}, {"letter", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, {"mark", "+*/=%&#@$!"}}};
    for (;;) {
      const auto& [name, symbols] = random_.one_of(kSigns);
      if (!words_.insert(std::string(name)).second) continue;
      Fact sign = fact(std::string(name), fmt::format(" {}", random_.one_of(symbols)), "");
      sign.left = std::numeric_limits<int64_t>::max();
      return sign;
    }
  }

  Fact fact(const std::string& before, const std::string& value, const std::string& after) const {
    return {.before = before, .value = value, .after = after, .left = config_.mentions};
  }

  void say(Fact& fact, bool again) {
    tokenizer_.encode(fact.before, ids_);
    marks_.resize(ids_.size(), kCounted);
    const bool recalled = again && place() - fact.said >= config_.nearest;
    fact.said = place();
    tokenizer_.encode(fact.value, ids_);
    for (size_t i = marks_.size(); i < ids_.size(); ++i) {
      // A space before the value can be told without remembering anything.
      const bool is_space = tokenizer_.decode({&ids_[i], 1}) == " ";
      marks_.push_back(recalled && !is_space ? kCounted | kRecalled : kCounted);
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
  std::vector<int32_t> ids_;
  std::vector<uint8_t> marks_;
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
  return Writer(config_, tokenizer_, key, filler_.open(key)).write(positions(index) - 1);
}

}  // namespace quire
