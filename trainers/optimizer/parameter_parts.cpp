#include "trainers/optimizer/parameter_parts.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

constexpr int64_t kLargestBucket = int64_t{4} << 20;    // elements
constexpr int64_t kSmallestBucket = int64_t{16} << 10;  // for smaller messages the latency costs more than the bytes
constexpr int64_t kAlignment = 16;                      // elements: parts begin on cache lines

// Returns the ranges of the entries in the order of the arena; each extends to the next one.
struct EntryRange {
  size_t entry;
  ArenaRange range;
};
std::vector<EntryRange> entry_ranges(const ParameterStore& store) {
  std::vector<EntryRange> places;
  for (size_t i = 0; i < store.entries().size(); ++i) places.push_back({i, {store.entries()[i].offset, 0}});
  std::sort(places.begin(), places.end(),
            [](const EntryRange& a, const EntryRange& b) { return a.range.begin < b.range.begin; });
  for (size_t i = 0; i < places.size(); ++i) {
    places[i].range.end = i + 1 < places.size() ? places[i + 1].range.begin : store.values().numel();
  }
  return places;
}

PartBounds equal_bounds(int64_t size, int64_t ranks) {
  PartBounds bounds{0};
  for (int64_t rank = 1; rank < ranks; ++rank) bounds.push_back(size * rank / ranks / kAlignment * kAlignment);
  bounds.push_back(size);
  return bounds;
}

}  // namespace

bool holds(const std::vector<ArenaRange>& ranges, const ParameterStore::Entry& entry) {
  const auto has = [&](const ArenaRange& range) { return range.begin <= entry.offset && entry.offset < range.end; };
  return std::any_of(ranges.begin(), ranges.end(), has);
}

int64_t ParameterParts::bucket_elements(int64_t arena) {
  return std::clamp(arena / 16, kSmallestBucket, kLargestBucket);
}

ParameterParts::ParameterParts(const ParameterStore& store, const RankPlace& place, Cut cut)
    : ParameterParts(store, place, cut, bucket_elements(store.values().numel())) {}

ParameterParts::ParameterParts(const ParameterStore& store, const RankPlace& place, Cut cut, int64_t bucket_elements)
    : place_(place) {
  QUIRE_CHECK(0 <= place.rank && place.rank < place.ranks, "parameter parts: rank {} of {}", place.rank, place.ranks);
  const int64_t total = store.values().numel();
  std::vector<int64_t> owners;  // the rank of each entry of a bucket, when an entry must not be divided
  const auto close = [&] {
    Bucket& bucket = buckets_.back();
    if (cut == Cut::anywhere) {
      bucket.bounds = equal_bounds(bucket.range.size(), place.ranks);
      return;
    }
    for (int64_t rank = 0; rank <= place.ranks; ++rank) {
      int64_t bound = 0;  // end of the entries of the ranks so far
      for (size_t i = 0; i < bucket.entries.size(); ++i) {
        if (owners[i] >= rank) break;
        bound = i + 1 < bucket.entries.size() ? store.entries()[bucket.entries[i + 1]].offset - bucket.range.begin
                                              : bucket.range.size();
      }
      bucket.bounds.push_back(bound);
    }
  };
  for (const EntryRange& next : entry_ranges(store)) {
    if (buckets_.empty() || buckets_.back().range.size() + next.range.size() > bucket_elements) {
      if (!buckets_.empty()) close();
      buckets_.push_back({{next.range.begin, next.range.begin}, {}, {}});
      owners.clear();
    }
    buckets_.back().range.end = next.range.end;
    buckets_.back().entries.push_back(next.entry);
    // The middle of the parameter decides, so that ranks get equal shares of the whole arena.
    owners.push_back((next.range.begin + next.range.end) / 2 * place.ranks / std::max<int64_t>(total, 1));
  }
  if (!buckets_.empty()) close();

  for (const Bucket& bucket : buckets_) {
    const auto rank = static_cast<size_t>(place.rank);
    const ArenaRange part{bucket.range.begin + bucket.bounds[rank], bucket.range.begin + bucket.bounds[rank + 1]};
    if (part.size() == 0) continue;
    if (!mine_.empty() && mine_.back().end == part.begin) {
      mine_.back().end = part.end;
    } else {
      mine_.push_back(part);
    }
  }
}

int64_t ParameterParts::elements() const {
  int64_t total = 0;
  for (const ArenaRange& range : mine_) total += range.size();
  return total;
}

}  // namespace quire
