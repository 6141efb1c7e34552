#include "data/tasks/needle_scene.h"

#include <algorithm>

#include "core/check.h"
#include "data/tasks/prose.h"

namespace quire {

namespace {

using Ids = std::vector<int32_t>;

Ids encoded(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

void append(Ids& to, const Ids& ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids ids;
  for (const Ids& part : parts) append(ids, part);
  return ids;
}

// "|The passkey is:" KEY "|" ... "|What is the passkey? The passkey is" KEY. The first token of the key is scored.
class Passkey : public NeedleKind {
 public:
  Passkey(const TaskConfig& config, const Tokenizer& tokenizer, const std::string& where)
      : alphabet_(config.alphabet, tokenizer, where),
        key_(config.key),
        before_(encoded(tokenizer, "|The passkey is:")),
        after_(encoded(tokenizer, "|")),
        question_(encoded(tokenizer, "|What is the passkey? The passkey is")) {}

  NeedleScene scene(TaskRandom& random) const override {
    const Ids key = alphabet_.draw(1, key_, random)[0];
    NeedleScene scene;
    scene.needles = {joined({before_, key, after_})};
    scene.question = question_;
    scene.answer = key;
    scene.recalled.assign(key.size(), 1);
    return scene;
  }
  int64_t longest_needles() const override { return static_cast<int64_t>(before_.size() + after_.size()) + key_; }
  int64_t longest_question() const override { return static_cast<int64_t>(question_.size()); }
  int64_t answer_length() const override { return key_; }

 private:
  KeyAlphabet alphabet_;
  int64_t key_;
  Ids before_;
  Ids after_;
  Ids question_;
};

// "|One of the special magic numbers for grey-harbour is:" KEY "|", several of them; one is asked for.
class Multikey : public NeedleKind {
 public:
  Multikey(const TaskConfig& config, const Tokenizer& tokenizer, const std::string& where)
      : tokenizer_(tokenizer), alphabet_(config.alphabet, tokenizer, where), key_(config.key), keys_(config.keys) {
    if (!alphabet_.has(keys_, key_)) {
      fail(ErrorKind::config, "{}: {} keys of {} symbols cannot differ; use a longer key", where, keys_, key_);
    }
    for (int64_t label = 0; label < prose_label_count(); ++label) {
      const std::string text = prose_label(label);
      longest_needle_ = std::max(longest_needle_, static_cast<int64_t>(needle(text, {}).size()) + key_);
      longest_question_ = std::max(longest_question_, static_cast<int64_t>(question(text).size()));
    }
  }

  NeedleScene scene(TaskRandom& random) const override {
    std::vector<int64_t> labels;
    while (static_cast<int64_t>(labels.size()) < keys_) {
      const int64_t label = random.below(prose_label_count());
      if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
    }
    const std::vector<Ids> keys = alphabet_.draw(keys_, key_, random);
    NeedleScene scene;
    for (size_t i = 0; i < keys.size(); ++i) scene.needles.push_back(needle(prose_label(labels[i]), keys[i]));
    scene.asked = static_cast<size_t>(random.below(keys_));
    scene.question = question(prose_label(labels[scene.asked]));
    scene.answer = keys[scene.asked];
    scene.recalled.assign(scene.answer.size(), 1);
    return scene;
  }
  int64_t longest_needles() const override { return keys_ * longest_needle_; }
  int64_t longest_question() const override { return longest_question_; }
  int64_t answer_length() const override { return key_; }

 private:
  Ids needle(const std::string& label, const Ids& key) const {
    return joined({encoded(tokenizer_, fmt::format("|One of the special magic numbers for {} is:", label)), key,
                   encoded(tokenizer_, "|")});
  }
  Ids question(const std::string& label) const {
    return encoded(tokenizer_,
                   fmt::format("|What is the special magic number for {}? The special magic number is", label));
  }

  const Tokenizer& tokenizer_;
  KeyAlphabet alphabet_;
  int64_t key_;
  int64_t keys_;
  int64_t longest_needle_ = 0;
  int64_t longest_question_ = 0;
};

// "|DEF" x0 "->" x1 "|", "|DEF" x1 "->" x2 "|" and other chains, all shuffled; "|The path from" x0 "is" x1 "," x2. The
// last token is scored.
class Hops : public NeedleKind {
 public:
  Hops(const TaskConfig& config, const Tokenizer& tokenizer, const std::string& where)
      : alphabet_(config.alphabet, tokenizer, where),
        key_(config.key),
        hops_(config.hops()),
        chains_(config.keys),
        define_(encoded(tokenizer, "|DEF")),
        arrow_(encoded(tokenizer, "->")),
        end_(encoded(tokenizer, "|")),
        path_(encoded(tokenizer, "|The path from ")),
        is_(encoded(tokenizer, " is")),
        comma_(encoded(tokenizer, ",")) {
    if (!alphabet_.has(variables(), key_)) {
      fail(ErrorKind::config, "{}: {} variables of {} symbols cannot differ; use a longer key", where, variables(),
           key_);
    }
  }

  NeedleScene scene(TaskRandom& random) const override {
    const std::vector<Ids> names = alphabet_.draw(variables(), key_, random);
    NeedleScene scene;
    for (int64_t chain = 0; chain < chains_; ++chain) {
      for (int64_t hop = 0; hop < hops_; ++hop) {
        const auto from = static_cast<size_t>(chain * (hops_ + 1) + hop);
        scene.needles.push_back(joined({define_, names[from], arrow_, names[from + 1], end_}));
      }
    }
    // Needles are hidden in the order in which they were drawn, so all orders are equally likely.
    scene.question = joined({path_, names[0], is_});
    for (int64_t hop = 1; hop <= hops_; ++hop) {
      if (hop > 1) {
        append(scene.answer, comma_);
        scene.recalled.insert(scene.recalled.end(), comma_.size(), 0);
      }
      append(scene.answer, names[static_cast<size_t>(hop)]);
      scene.recalled.insert(scene.recalled.end(), static_cast<size_t>(key_), 1);
    }
    scene.scored = static_cast<int64_t>(scene.answer.size()) - 1;
    return scene;
  }
  int64_t longest_needles() const override {
    return chains_ * hops_ * (static_cast<int64_t>(define_.size() + arrow_.size() + end_.size()) + 2 * key_);
  }
  int64_t longest_question() const override { return static_cast<int64_t>(path_.size() + is_.size()) + key_; }
  int64_t answer_length() const override { return hops_ * key_ + (hops_ - 1) * static_cast<int64_t>(comma_.size()); }

 private:
  int64_t variables() const { return chains_ * (hops_ + 1); }

  KeyAlphabet alphabet_;
  int64_t key_;
  int64_t hops_;
  int64_t chains_;
  Ids define_;
  Ids arrow_;
  Ids end_;
  Ids path_;
  Ids is_;
  Ids comma_;
};

}  // namespace

std::unique_ptr<NeedleKind> make_needle_kind(const TaskConfig& config, const Tokenizer& tokenizer,
                                             const std::string& where) {
  if (config.kind() == TaskKind::multikey) return std::make_unique<Multikey>(config, tokenizer, where);
  if (config.kind() == TaskKind::hops) return std::make_unique<Hops>(config, tokenizer, where);
  return std::make_unique<Passkey>(config, tokenizer, where);
}

}  // namespace quire
