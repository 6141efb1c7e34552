#include "data/tokenizers/bpe_training.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>

#include "core/check.h"
#include "data/tokenizers/bpe_files.h"
#include "data/tokenizers/byte_letters.h"

namespace quire {

namespace {

constexpr const char* kDocumentEnd = "<|endoftext|>";
// A longer word is no word of a language, and its pairs would say little.
constexpr size_t kLongestTrainingWord = 256;

using PairKey = uint64_t;

PairKey key_of_pair(int32_t left, int32_t right) {
  return PairKey{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct TrainingWord {
  std::vector<int32_t> symbols;
  int64_t count = 0;
};

struct TrainingPair {
  int64_t count = 0;
  std::vector<uint32_t> words;  // in which it may occur
};

// A pair and what it counted when it was put into the queue; of equal counts the lower ids come first.
struct PairCandidate {
  int64_t count = 0;
  PairKey pair = 0;
  bool operator<(const PairCandidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class PairMerging {
 public:
  explicit PairMerging(const std::unordered_map<std::string, int64_t>& counts) {
    std::vector<const std::pair<const std::string, int64_t>*> sorted;
    for (const auto& word : counts) sorted.push_back(&word);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    for (int byte = 0; byte < 256; ++byte) add_token(std::string(1, static_cast<char>(byte)));
    for (const auto* word : sorted) {
      TrainingWord& added = words_.emplace_back();
      added.count = word->second;
      for (const char c : word->first) added.symbols.push_back(static_cast<uint8_t>(c));
      const auto index = static_cast<uint32_t>(words_.size() - 1);
      for (size_t i = 0; i + 1 < added.symbols.size(); ++i) {
        count_pair(key_of_pair(added.symbols[i], added.symbols[i + 1]), added.count, index);
      }
    }
    for (const auto& [pair, known] : pairs_) queue_.push({known.count, pair});
  }

  // Joins the pair that occurs most often. Returns false when none occurs twice.
  bool step() {
    while (!queue_.empty()) {
      const PairCandidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      const int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count < 2) continue;
      if (count != top.count) {
        queue_.push({count, top.pair});
        continue;
      }
      join(top.pair);
      return true;
    }
    return false;
  }
  size_t tokens() const { return tokens_.size(); }

  std::string vocabulary() const {
    std::string text;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      text += fmt::format("{}{}:{}", id == 0 ? "{" : ",", letters(static_cast<int32_t>(id)), id);
    }
    return text + "}";
  }
  std::string merges() const {
    std::string text;
    for (const PairKey pair : merges_) {
      text += fmt::format("{}[{},{}]", text.empty() ? "" : ",", letters(static_cast<int32_t>(pair >> 32)),
                          letters(static_cast<int32_t>(pair & 0xFFFFFFFFU)));
    }
    return fmt::format("[{}]", text);
  }

 private:
  std::string letters(int32_t id) const {
    return nlohmann::json(to_byte_letters(tokens_[static_cast<size_t>(id)])).dump();
  }

  // Two pairs may have the same text; it is one token.
  int32_t add_token(const std::string& text) {
    const auto [found, is_new] = ids_.emplace(text, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(text);
    return found->second;
  }

  void count_pair(PairKey pair, int64_t count, uint32_t word) {
    TrainingPair& known = pairs_[pair];
    known.count += count;
    if (count > 0 && (known.words.empty() || known.words.back() != word)) known.words.push_back(word);
  }

  void join(PairKey pair) {
    const auto left = static_cast<int32_t>(pair >> 32);
    const auto right = static_cast<int32_t>(pair & 0xFFFFFFFFU);
    const int32_t id = add_token(tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)]);
    merges_.push_back(pair);
    const std::vector<uint32_t> words = std::move(pairs_[pair].words);
    pairs_.erase(pair);
    std::vector<PairKey> grown;
    for (const uint32_t word : words) join_in(word, left, right, id, grown);
    pairs_.erase(pair);  // what the words counted it down by
    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const PairKey one : grown) {
      if (const auto found = pairs_.find(one); found != pairs_.end()) queue_.push({found->second.count, one});
    }
  }

  void join_in(uint32_t index, int32_t left, int32_t right, int32_t id, std::vector<PairKey>& grown) {
    TrainingWord& word = words_[index];
    const std::vector<int32_t>& symbols = word.symbols;
    std::vector<int32_t> joined;
    joined.reserve(symbols.size());
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (i + 1 < symbols.size() && symbols[i] == left && symbols[i + 1] == right) {
        joined.push_back(id);
        ++i;
      } else {
        joined.push_back(symbols[i]);
      }
    }
    if (joined.size() == symbols.size()) return;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      count_pair(key_of_pair(symbols[i], symbols[i + 1]), -word.count, index);
    }
    for (size_t i = 0; i + 1 < joined.size(); ++i) {
      const PairKey pair = key_of_pair(joined[i], joined[i + 1]);
      count_pair(pair, word.count, index);
      if (joined[i] == id || joined[i + 1] == id) grown.push_back(pair);
    }
    word.symbols = std::move(joined);
  }

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<TrainingWord> words_;
  std::unordered_map<PairKey, TrainingPair> pairs_;
  std::priority_queue<PairCandidate> queue_;
  std::vector<PairKey> merges_;
};

std::string trained_json(std::string vocabulary, std::string merges, int64_t end) {
  return byte_level_json(std::move(vocabulary), std::move(merges), kLlama3Pattern, false, {{end, kDocumentEnd}});
}

}  // namespace

BpeTrainer::BpeTrainer() {
  std::string bytes;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    bytes += fmt::format("{}{}:{}", byte == 0 ? "{" : ",", nlohmann::json(letter_of(static_cast<uint8_t>(byte))).dump(),
                         byte);
  }
  bytes_ = std::make_unique<BpeTokenizer>(trained_json(bytes + "}", "[]", 256), 256, 256);
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add_text(std::string_view text) {
  pending_ += text;
  const size_t whole = bytes_->divisible_prefix(pending_);
  bytes_->cut(std::string_view(pending_).substr(0, whole), *this);
  pending_.erase(0, whole);
}

void BpeTrainer::end_document() {
  bytes_->cut(pending_, *this);
  pending_.clear();
}

void BpeTrainer::add(std::string_view word, bool /*is_valid*/) {
  if (word.size() <= kLongestTrainingWord) ++words_[std::string(word)];
}

std::string BpeTrainer::train(int64_t vocabulary) const {
  QUIRE_CHECK(vocabulary >= kSmallestBpeVocabulary, "tokenizer training: {} ids", vocabulary);
  PairMerging merging(words_);
  while (static_cast<int64_t>(merging.tokens()) + 1 < vocabulary) {
    if (merging.step()) continue;
    fail(
        ErrorKind::config,
        "the tokenizer cannot be trained: the text has pairs for {} ids only; take a smaller --vocab-size or more text",
        merging.tokens() + 1);
  }
  return trained_json(merging.vocabulary(), merging.merges(), vocabulary - 1);
}

}  // namespace quire
