// The documents of a split in an endless order: every epoch has its own permutation.
#pragma once

#include <span>

#include "data/corpus/document_order.h"
#include "data/corpus/documents.h"

namespace quire {

class SplitList : public ReadingList {
 public:
  // Offsets are those of Split::offsets(); they must outlive this.
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

}  // namespace quire
