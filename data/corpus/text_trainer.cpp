#include "data/corpus/text_trainer.h"

#include <algorithm>

#include "core/check.h"
#include "core/random.h"
#include "data/sources/text_units.h"
#include "data/tokenizers/bpe_training.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"

namespace quire {

namespace {

constexpr uint32_t kScope = hash_scope("tokenizer.sentences");

// The trainer uses these characters internally and drops a sentence that contains one. They end a sentence here;
// encoding turns them into bytes.
constexpr std::string_view kReserved[] = {"\xE2\x96\x81", "\xE2\x96\x85", std::string_view("\0", 1)};

// Keeps a uniform random sample of fixed size of all lines (Vitter's algorithm R).
class Sample {
 public:
  explicit Sample(int64_t limit) : limit_(limit) {}

  void add(std::string_view text) {
    while (!text.empty()) {
      size_t end = text.size();
      size_t next = text.size();
      for (const std::string_view reserved : kReserved) {
        const size_t at = text.find(reserved);
        if (at >= end) continue;
        end = at;
        next = at + reserved.size();
      }
      if (end > 0) keep(text.substr(0, end));
      text.remove_prefix(next);
    }
  }
  int64_t seen() const { return seen_; }
  const std::vector<std::string>& sentences() const { return sentences_; }

 private:
  void keep(std::string_view sentence) {
    const int64_t index = seen_++;
    if (index < limit_) {
      sentences_.emplace_back(sentence);
      return;
    }
    const auto bits = philox(RandomKey{}, kScope, 0, static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(index));
    const uint64_t place = (uint64_t{bits[0]} << 32 | bits[1]) % static_cast<uint64_t>(seen_);
    if (place < static_cast<uint64_t>(limit_)) sentences_[place] = sentence;
  }

  int64_t limit_;
  int64_t seen_ = 0;
  std::vector<std::string> sentences_;
};

class SentencePieceTrainer : public TextTrainer {
 public:
  SentencePieceTrainer(SentencePieceTraining options, int64_t max_sentences)
      : options_(std::move(options)), sample_(max_sentences) {}

  void add(std::string_view text) override {
    pending_ += text;
    const size_t whole = whole_units(pending_);
    add_units(std::string_view(pending_).substr(0, whole));
    pending_.erase(0, whole);
  }
  void end_document() override {
    add_units(pending_);
    pending_.clear();
  }
  bool empty() const override { return sample_.sentences().empty(); }
  std::string train() const override {
    size_t next = 0;
    return train_sentencepiece(options_, [&]() -> const std::string* {
      return next < sample_.sentences().size() ? &sample_.sentences()[next++] : nullptr;
    });
  }
  std::unique_ptr<Tokenizer> open(const std::string& file) const override {
    return std::make_unique<SentencePieceTokenizer>(file);
  }
  TrainedLines lines() const override { return {sample_.seen(), static_cast<int64_t>(sample_.sentences().size())}; }
  void examples(const std::function<bool(std::string_view)>& each) const override {
    for (const std::string& sentence : sample_.sentences()) {
      if (!each(sentence + "\n")) return;
    }
  }

 private:
  void add_units(std::string_view text) {
    while (!text.empty()) {
      const size_t count = first_unit(text);
      std::string_view unit = text.substr(0, count);
      if (unit.back() == '\n') unit.remove_suffix(1);
      sample_.add(unit);
      text.remove_prefix(count);
    }
  }

  SentencePieceTraining options_;
  Sample sample_;
  std::string pending_;
};

class BpeTextTrainer : public TextTrainer {
 public:
  explicit BpeTextTrainer(int64_t vocabulary) : vocabulary_(vocabulary) {}

  void add(std::string_view text) override {
    trainer_.add_text(text);
    lines_ += std::count(text.begin(), text.end(), '\n');
    if (!text.empty()) last_ = text.back();
    if (example_.size() < kExampleBytes) example_ += text.substr(0, kExampleBytes);
  }
  void end_document() override {
    trainer_.end_document();
    if (last_ != '\n') ++lines_;
    last_ = '\n';
  }
  bool empty() const override { return trainer_.empty(); }
  std::string train() const override { return trainer_.train(vocabulary_); }
  std::unique_ptr<Tokenizer> open(const std::string& file) const override {
    const auto end = static_cast<int32_t>(vocabulary_ - 1);
    return std::make_unique<BpeTokenizer>(file, end, end);
  }
  TrainedLines lines() const override { return {lines_, lines_}; }
  void examples(const std::function<bool(std::string_view)>& each) const override { each(example_); }

 private:
  int64_t vocabulary_;
  BpeTrainer trainer_;
  int64_t lines_ = 0;
  char last_ = '\n';
  std::string example_;
};

}  // namespace

std::unique_ptr<TextTrainer> make_sentencepiece_trainer(const SentencePieceTraining& options, int64_t max_sentences) {
  return std::make_unique<SentencePieceTrainer>(options, max_sentences);
}

std::unique_ptr<TextTrainer> make_bpe_trainer(int64_t vocabulary) {
  return std::make_unique<BpeTextTrainer>(vocabulary);
}

}  // namespace quire
