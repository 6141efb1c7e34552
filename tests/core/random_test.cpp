// Compares Philox4x32-10 with the known answers that Random123 publishes with its code (kat_vectors).
#include "core/random.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using Numbers = std::array<uint32_t, 4>;

// Arguments have the order of the published file: four numbers of the counter, two of the key.
Numbers at(const Numbers& counter, uint32_t key0, uint32_t key1) {
  return philox({key0, key1}, counter[3], counter[2], counter[1], counter[0]);
}

TEST(Philox, GivesThePublishedNumbers) {
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(at({0, 0, 0, 0}, 0, 0), (Numbers{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(at({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes), (Numbers{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The first digits of pi.
  EXPECT_EQ(at({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Numbers{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, AKeyIsTheSeedsHalvesAndTheStep) {
  const RandomKey key = RandomKey::of(0x0123456789abcdef, 7);
  EXPECT_EQ(key.seed, 0x01234567U ^ 0x89abcdefU);
  EXPECT_EQ(key.step, 7U);
}

TEST(Philox, UniformNumbersLieBelowOne) {
  EXPECT_EQ(uniform_from_bits(0), 0.0F);
  EXPECT_EQ(uniform_from_bits(0x80000000), 0.5F);
  EXPECT_EQ(uniform_from_bits(0xffffffff), 1.0F - 0x1p-24F);
}

// The published test values of FNV-1a in 32 bits.
TEST(HashScope, IsFnv1a) {
  EXPECT_EQ(hash_scope(""), 0x811c9dc5U);
  EXPECT_EQ(hash_scope("a"), 0xe40c292cU);
  EXPECT_EQ(hash_scope("foobar"), 0xbf9cf968U);
}

}  // namespace
}  // namespace quire
