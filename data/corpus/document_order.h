// The order of documents in every epoch: a keyed permutation that is computed for one place at a time, so that no list
// is stored or shuffled.
#pragma once

#include <cstdint>

namespace quire {

class DocumentOrder {
 public:
  // Without shuffle every epoch is 0, 1, ..., documents - 1.
  DocumentOrder(int64_t documents, uint64_t seed, bool shuffle);

  int64_t documents() const { return documents_; }
  // Returns the document at a place of the endless order; epoch e is places [e * documents, (e + 1) * documents).
  int64_t at(int64_t place) const;

 private:
  uint64_t permute_once(uint64_t value, int64_t epoch) const;

  int64_t documents_;
  uint64_t seed_;
  bool shuffle_;
  int half_bits_ = 1;
};

}  // namespace quire
