#include "data/batches/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace quire {

namespace {

// The number of slots of a block. Documents may differ in length by a factor of thousands, and each part needs a slot.
constexpr int64_t kSlots = int64_t{1} << 16;

double mean_positions(const MixturePart& part) {
  if (part.split == nullptr) return part.task->task().mean_positions();
  return static_cast<double>(part.split->totals().tokens) / static_cast<double>(part.split->documents()) + 1;
}

}  // namespace

const Documents& Mixture::Part::documents() const {
  return source.split != nullptr ? static_cast<const Documents&>(*source.split) : *source.task;
}

Mixture::Mixture(std::vector<MixturePart> parts, uint64_t seed) : slots_(kSlots, seed ^ hash_scope("mixture"), true) {
  QUIRE_CHECK(!parts.empty() && static_cast<int64_t>(parts.size()) < kSlots, "mixture: {} parts", parts.size());
  // Weights count positions, slots count documents.
  double total = 0;
  for (const MixturePart& part : parts) {
    total += part.weight / mean_positions(part);
    weights_ += part.weight;
  }
  int64_t given = 0;
  for (MixturePart& source : parts) {
    Part part;
    const double share = source.weight / mean_positions(source) / total;
    part.slots = std::max<int64_t>(1, std::llround(share * static_cast<double>(kSlots)));
    given += part.slots;
    part.source = std::move(source);
    if (part.source.split != nullptr) {
      const uint64_t own = seed + 0x9E3779B97F4A7C15ULL * parts_.size();
      part.order = std::make_unique<DocumentOrder>(part.source.split->documents(), own, true);
    }
    marked_ = marked_ || part.documents().marked();
    parts_.push_back(std::move(part));
  }
  // The largest part receives the rounding error.
  std::max_element(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
    return a.slots < b.slots;
  })->slots += kSlots - given;
  int64_t first = 0;
  for (Part& part : parts_) {
    part.first_slot = first;
    first += part.slots;
  }
}

double Mixture::share(int64_t index) const {
  return static_cast<double>(parts_[static_cast<size_t>(index)].slots) / static_cast<double>(kSlots);
}

int64_t Mixture::documents() const {
  return std::numeric_limits<int64_t>::max();
}

int64_t Mixture::document(int64_t place) const {
  const int64_t slot = slots_.at(place);
  const auto found = std::upper_bound(parts_.begin(), parts_.end(), slot,
                                      [](int64_t value, const Part& part) { return value < part.first_slot; }) -
                     1;
  const int64_t number = place / kSlots * found->slots + slot - found->first_slot;
  const int64_t document = found->order ? found->order->at(number) : number;
  return document * parts() + (found - parts_.begin());
}

int64_t Mixture::length(int64_t document) const {
  return part(document).documents().length(number_in_part(document));
}

std::string Mixture::name(int64_t document) const {
  return part(document).documents().name(number_in_part(document));
}

void Mixture::tokens(int64_t document, int64_t begin, int64_t count, int32_t* out) const {
  part(document).documents().tokens(number_in_part(document), begin, count, out);
}

void Mixture::marks(int64_t document, int64_t begin, int64_t count, uint8_t* out) const {
  const Documents& from = part(document).documents();
  if (from.marked()) return from.marks(number_in_part(document), begin, count, out);
  std::fill_n(out, count, kCounted);
}

}  // namespace quire
