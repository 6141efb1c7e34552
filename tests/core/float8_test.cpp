// Tests all 256 eight-bit floating-point numbers.
#include "core/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quire::test {
namespace {

float8 pattern(int bits) {
  return std::bit_cast<float8>(static_cast<uint8_t>(bits));
}

// (-1)^s 2^(e - 7) (1 + m / 8), with e = 0: (-1)^s 2^-6 m / 8.
double by_definition(int bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  const double size = exponent == 0 ? std::ldexp(mantissa / 8.0, -6) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
  return bits < 128 ? size : -size;
}

TEST(Float8, EveryPatternIsWhatItStandsForAndComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = static_cast<float>(pattern(bits));
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_EQ(float8(value).bits & 0x7f, 0x7f);
      continue;
    }
    EXPECT_EQ(value, by_definition(bits)) << bits;
    EXPECT_EQ(std::signbit(value), bits >= 128);
    EXPECT_EQ(float8(value).bits, bits);
  }
  EXPECT_EQ(by_definition(0x7e), float8::kLargest);
}

TEST(Float8, RoundsToTheNearestAndTiesToEven) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const double low = by_definition(bits);
    const double high = by_definition(bits + 1);
    const double middle = (low + high) / 2;
    EXPECT_EQ(float8(middle).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(float8(-middle).bits, 128 + (bits % 2 == 0 ? bits : bits + 1)) << bits;
    EXPECT_EQ(float8(std::nextafter(middle, 0)).bits, bits) << bits;
    EXPECT_EQ(float8(std::nextafter(middle, 1e9)).bits, bits + 1) << bits;
  }
  EXPECT_EQ(float8(1e-300).bits, 0);
  EXPECT_EQ(float8(-std::numeric_limits<double>::denorm_min()).bits, 0x80);
}

TEST(Float8, WhatIsLargerBecomesTheLargest) {
  for (const double large : {449.0, 464.0, 480.0, 1e9, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(static_cast<float>(float8(large)), 448.0F) << large;
    EXPECT_EQ(static_cast<float>(float8(-large)), -448.0F) << large;
  }
}

}  // namespace
}  // namespace quire::test
