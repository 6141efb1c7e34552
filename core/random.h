// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
// The value at a counter depends on nothing else, so masks do not change with ranks, threads or recomputation.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace quire {

// The generator's key: the seed of the run and the optimizer step (0 for values that stay the same over a run).
struct RandomKey {
  uint32_t seed = 0;
  uint32_t step = 0;

  static RandomKey of(uint64_t seed, int64_t step) {
    return {static_cast<uint32_t>(seed ^ (seed >> 32)), static_cast<uint32_t>(step)};
  }
};

// The counter names the use (a hash of the scope path), the global row, the token and the group of four elements.
constexpr std::array<uint32_t, 4> philox(RandomKey key, uint32_t scope, uint32_t row, uint32_t token,
                                         uint32_t element) {
  uint32_t c0 = element;
  uint32_t c1 = token;
  uint32_t c2 = row;
  uint32_t c3 = scope;
  uint32_t k0 = key.seed;
  uint32_t k1 = key.step;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {c0, c1, c2, c3};
}

// Returns a uniform number in [0, 1) with 24 bits.
constexpr float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}

// FNV-1a hash of the name of a random stream. Checkpoints depend on it, so it must not change between versions.
constexpr uint32_t hash_scope(std::string_view path) {
  uint32_t hash = 2166136261U;
  for (const char c : path) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619U;
  return hash;
}

}  // namespace quire
