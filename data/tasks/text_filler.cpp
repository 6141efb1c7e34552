#include <algorithm>

#include "data/tasks/filler.h"

namespace quire {

namespace {

class EndlessText : public FillerText {
 public:
  EndlessText(const std::vector<int32_t>& ids, const DocumentKey& document)
      : ids_(ids), start_(TaskRandom(document, "data.tasks.filler").below(static_cast<int64_t>(ids.size()))) {}

  void tokens(int64_t begin, int64_t count, int32_t* out) override {
    const auto size = static_cast<int64_t>(ids_.size());
    for (int64_t at = (start_ + begin) % size; count > 0; at = 0) {
      const int64_t here = std::min(count, size - at);
      out = std::copy_n(ids_.begin() + at, here, out);
      count -= here;
    }
  }

  void passage(TaskRandom& random, std::vector<int32_t>& out) override {
    const int64_t count = 16 + random.below(48);
    out.resize(out.size() + static_cast<size_t>(count));
    tokens(place_, count, &*(out.end() - count));
    place_ += count;
  }

 private:
  const std::vector<int32_t>& ids_;
  int64_t start_;
  int64_t place_ = 0;  // place of the next passage
};

class TextFiller : public Filler {
 public:
  explicit TextFiller(std::vector<int32_t> ids) : ids_(std::move(ids)) {}
  std::unique_ptr<FillerText> open(const DocumentKey& document) const override {
    return std::make_unique<EndlessText>(ids_, document);
  }

 private:
  std::vector<int32_t> ids_;
};

}  // namespace

std::unique_ptr<Filler> make_text_filler(std::vector<int32_t> ids) {
  return std::make_unique<TextFiller>(std::move(ids));
}

}  // namespace quire
