// Divides the arena of parameters between ranks (ZeRO stage 1, Rajbhandari et al. 2020, section 5): each rank keeps the
// moments of its part, updates the weights there and sends them to the others. The arena is cut into buckets, whose
// bounds do not depend on the number of ranks, and each bucket into one part for every rank.
#pragma once

#include <vector>

#include "core/ranks/collectives.h"
#include "layers/parameters/parameter_store.h"

namespace quire {

// One of the ranks of a run.
struct RankPlace {
  int rank = 0;
  int ranks = 1;
};

// Elements [begin, end) of the arena.
struct ArenaRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ArenaRange&) const = default;
};

// Returns whether a parameter begins in one of the ranges: whether a rank has it, where parts end at parameters.
bool holds(const std::vector<ArenaRange>& ranges, const ParameterStore::Entry& entry);

class ParameterParts {
 public:
  // Selects where the parts of a bucket may end: an optimizer that works on whole matrices needs each of them on one
  // rank.
  enum class Cut { anywhere, at_parameters };
  // Returns the largest number of elements of a bucket; a larger parameter has a bucket for itself. A small model has
  // about sixteen buckets, so that its gradients are sent during the sweep, too.
  static int64_t bucket_elements(int64_t arena);

  ParameterParts(const ParameterStore& store, const RankPlace& place, Cut cut);
  ParameterParts(const ParameterStore& store, const RankPlace& place, Cut cut, int64_t bucket_elements);

  struct Bucket {
    ArenaRange range;
    PartBounds bounds;            // elements counted from range.begin
    std::vector<size_t> entries;  // entries of the store, including the alignment gaps after them
  };
  // The buckets in the order of the arena, without gaps.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const RankPlace& place() const { return place_; }
  // The ranges that this rank updates, in order; adjacent ranges are joined.
  const std::vector<ArenaRange>& mine() const { return mine_; }
  int64_t elements() const;  // number of elements of this rank

 private:
  RankPlace place_;
  std::vector<Bucket> buckets_;
  std::vector<ArenaRange> mine_;
};

}  // namespace quire
