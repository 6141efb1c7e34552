#include "data/corpus/document_order.h"

#include <bit>

#include "core/check.h"
#include "core/random.h"

namespace quire {

namespace {

// Four rounds of a Feistel network with independent random functions are indistinguishable from a random permutation
// (Luby and Rackoff 1988). The halves are small here, so there are some more rounds.
constexpr uint32_t kRounds = 8;
constexpr uint32_t kScope = hash_scope("data.order");

}  // namespace

DocumentOrder::DocumentOrder(int64_t documents, uint64_t seed, bool shuffle)
    : documents_(documents), seed_(seed), shuffle_(shuffle) {
  QUIRE_CHECK(documents > 0, "document order: {} documents", documents);
  // The network permutes 2^(2h) numbers: the smallest such set that contains all documents.
  const int bits = std::bit_width(static_cast<uint64_t>(documents - 1));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

int64_t DocumentOrder::at(int64_t place) const {
  QUIRE_CHECK(place >= 0, "document order: place {}", place);
  const int64_t epoch = place / documents_;
  auto value = static_cast<uint64_t>(place % documents_);
  if (!shuffle_) return static_cast<int64_t>(value);
  // Cycle walking: numbers beyond the last document are permuted again. On average this takes fewer than four
  // permutations.
  do {
    value = permute_once(value, epoch);
  } while (value >= static_cast<uint64_t>(documents_));
  return static_cast<int64_t>(value);
}

uint64_t DocumentOrder::permute_once(uint64_t value, int64_t epoch) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    // The halves have at most 32 bits.
    const uint64_t mixed =
        left ^ (philox(RandomKey::of(seed_, epoch), kScope, round, 0, static_cast<uint32_t>(right))[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

}  // namespace quire
