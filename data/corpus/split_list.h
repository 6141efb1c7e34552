// The choice and order of the documents of a split.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "data/corpus/document_order.h"
#include "data/corpus/documents.h"

namespace quire {

// All documents, in an endless order: every epoch has its own permutation. Offsets are those of Split::offsets(); they
// must outlive this.
class SplitList : public ReadingList {
 public:
  SplitList(std::span<const int64_t> offsets, uint64_t seed, bool shuffle)
      : offsets_(offsets), order_(static_cast<int64_t>(offsets.size()) - 1, seed, shuffle) {}

  int64_t documents() const override { return order_.documents(); }
  int64_t document(int64_t place) const override { return order_.at(place); }
  int64_t tokens_with_bos(int64_t document) const override {
    const auto index = static_cast<size_t>(document);
    return offsets_[index + 1] - offsets_[index] + 1;
  }

 private:
  std::span<const int64_t> offsets_;
  DocumentOrder order_;
};

// Chosen documents, in order; with `last_tokens`, only the first `last_tokens` tokens (BOS included) of the last
// document.
class ChosenList : public ReadingList {
 public:
  ChosenList(std::span<const int64_t> offsets, std::vector<int64_t> chosen, std::optional<int64_t> last_tokens = {})
      : offsets_(offsets), chosen_(std::move(chosen)), last_tokens_(last_tokens) {}

  int64_t documents() const override { return static_cast<int64_t>(chosen_.size()); }
  int64_t document(int64_t place) const override { return chosen_.at(static_cast<size_t>(place)); }
  int64_t tokens_with_bos(int64_t document) const override {
    const auto index = static_cast<size_t>(document);
    const int64_t tokens = offsets_[index + 1] - offsets_[index] + 1;
    return last_tokens_ && document == chosen_.back() ? std::min(*last_tokens_, tokens) : tokens;
  }

 private:
  std::span<const int64_t> offsets_;
  std::vector<int64_t> chosen_;
  std::optional<int64_t> last_tokens_;
};

}  // namespace quire
