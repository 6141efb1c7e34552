#include "data/tasks/filler.h"

#include <algorithm>
#include <array>

#include "data/tasks/prose.h"

namespace quire {

namespace {

// Each block is made without the others, so that a distant part needs nothing before it. A sentence is cut where a
// block ends.
class ProseText : public FillerText {
 public:
  ProseText(const Tokenizer& tokenizer, const DocumentKey& document) : tokenizer_(tokenizer), document_(document) {}

  void tokens(int64_t begin, int64_t count, int32_t* out) override {
    while (count > 0) {
      const std::vector<int32_t>& ids = block(begin / kBlock);
      const int64_t at = begin % kBlock;
      const int64_t here = std::min(count, kBlock - at);
      out = std::copy_n(ids.begin() + at, here, out);
      begin += here;
      count -= here;
    }
  }

  void passage(TaskRandom& random, std::vector<int32_t>& out) override {
    tokenizer_.encode(prose_sentence(random), out);
  }

 private:
  static constexpr int64_t kBlock = 2048;  // tokens

  // Reading goes forward and looks at the token before, so two blocks are kept.
  const std::vector<int32_t>& block(int64_t number) {
    Block& kept = blocks_[static_cast<size_t>(number % 2)];
    if (kept.number == number) return kept.ids;
    TaskRandom random(document_, "data.tasks.prose", number);
    kept.number = number;
    kept.ids.clear();
    while (static_cast<int64_t>(kept.ids.size()) < kBlock) tokenizer_.encode(prose_sentence(random), kept.ids);
    kept.ids.resize(static_cast<size_t>(kBlock));
    return kept.ids;
  }

  struct Block {
    int64_t number = -1;
    std::vector<int32_t> ids;
  };
  const Tokenizer& tokenizer_;
  DocumentKey document_;
  std::array<Block, 2> blocks_;
};

class ProseFiller : public Filler {
 public:
  explicit ProseFiller(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::unique_ptr<FillerText> open(const DocumentKey& document) const override {
    return std::make_unique<ProseText>(tokenizer_, document);
  }

 private:
  const Tokenizer& tokenizer_;
};

class CorpusText : public FillerText {
 public:
  CorpusText(const Split& split, const DocumentKey& document) : split_(split) {
    start_ = TaskRandom(document, "data.tasks.filler").below(split.totals().tokens);
  }

  void tokens(int64_t begin, int64_t count, int32_t* out) override {
    const std::span<const int64_t> offsets = split_.offsets();
    int64_t at = (start_ + begin) % offsets.back();
    auto document = std::upper_bound(offsets.begin(), offsets.end(), at) - offsets.begin() - 1;
    while (count > 0) {
      const int64_t first = at - offsets[static_cast<size_t>(document)];
      const int64_t here = std::min(count, split_.length(document) - first);
      split_.tokens(document, first, here, out);
      out += here;
      count -= here;
      at += here;
      if (++document == split_.documents()) document = at = 0;
    }
  }

  void passage(TaskRandom& random, std::vector<int32_t>& out) override {
    const int64_t count = 16 + random.below(48);
    const size_t before = out.size();
    out.resize(before + static_cast<size_t>(count));
    tokens(place_, count, &out[before]);
    place_ += count;
  }

 private:
  const Split& split_;
  int64_t start_ = 0;
  int64_t place_ = 0;  // place of the next passage
};

class CorpusFiller : public Filler {
 public:
  explicit CorpusFiller(const Split& split) : split_(split) {}
  std::unique_ptr<FillerText> open(const DocumentKey& document) const override {
    return std::make_unique<CorpusText>(split_, document);
  }

 private:
  const Split& split_;
};

}  // namespace

std::unique_ptr<Filler> make_prose_filler(const Tokenizer& tokenizer) {
  return std::make_unique<ProseFiller>(tokenizer);
}

std::unique_ptr<Filler> make_corpus_filler(const Split& split) {
  return std::make_unique<CorpusFiller>(split);
}

}  // namespace quire
