#include "trainers/evaluation/position_bins.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace quire {
namespace {

TEST(ExactSum, DoesNotDependOnTheOrder) {
  ExactSum up;
  ExactSum down;
  ExactSum odd;
  ExactSum even;
  double in_f64 = 0;
  for (int i = 0; i < 10000; ++i) {
    const auto value = [](int n) { return static_cast<double>(static_cast<float>(std::exp(0.001 * n - 5))); };
    up.add(value(i));
    down.add(value(9999 - i));
    (i % 2 == 0 ? even : odd).add(value(i));
    in_f64 += value(i);
  }
  EXPECT_EQ(up, down);
  even.add(odd);
  EXPECT_EQ(up, even);
  EXPECT_NEAR(up.value() / in_f64, 1, 1e-13);
  ExactSum tiny;
  tiny.add(0x1p-60);
  tiny.add(-0.75);
  EXPECT_EQ(tiny.value(), -0.75 + 0x1p-60);
}

TEST(ExactSum, WhatDoesNotFitIsInfinite) {
  for (const double value : {static_cast<double>(INFINITY), static_cast<double>(NAN), 1e18}) {
    ExactSum sum;
    sum.add(1);
    sum.add(value);
    sum.add(-1);
    EXPECT_EQ(sum.value(), INFINITY);
  }
  ExactSum sum;
  for (int i = 0; i < 9; ++i) {
    ExactSum copy = sum;
    for (int j = 0; j < (1 << 20); ++j) copy.add(0x1p39);
    sum = copy;
  }
  EXPECT_EQ(sum.value(), 9 * 0x1p59);
}

TEST(PositionBins, PowersOfTwo) {
  PositionBins bins(1000);
  for (const int64_t position : {0, 1, 2, 3, 4, 7, 8, 1000}) bins.add(position, 0.5, 1);
  ASSERT_EQ(bins.bins().size(), 11U);
  const int64_t begins[] = {0, 1, 2, 4, 8, 16};
  const int64_t tokens[] = {1, 1, 2, 2, 1, 0};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(bins.bins()[i].begin, begins[i]);
    EXPECT_EQ(bins.bins()[i].end, i == 0 ? 1 : 2 * begins[i]);
    EXPECT_EQ(bins.bins()[i].tokens, tokens[i]);
    EXPECT_EQ(bins.bins()[i].bytes, tokens[i]);
    EXPECT_EQ(bins.bins()[i].nll.value(), 0.5 * static_cast<double>(tokens[i]));
  }
  EXPECT_EQ(bins.bins()[10].begin, 512);
  EXPECT_EQ(bins.bins()[10].end, 1024);
}

TEST(PositionBins, OfAWidth) {
  PositionBins bins(100, 30);
  for (const int64_t position : {0, 29, 30, 95}) bins.add(position, 1, 0);
  ASSERT_EQ(bins.bins().size(), 4U);
  EXPECT_EQ(bins.bins()[0].tokens, 2);
  EXPECT_EQ(bins.bins()[3].begin, 90);
  EXPECT_EQ(bins.bins()[3].end, 120);
  try {
    const PositionBins many(10'000'000, 99);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    EXPECT_NE(std::string(error.what()).find("give 101 or more"), std::string::npos) << error.what();
  }
  EXPECT_EQ(parse_bin_width("log2"), 0);
  EXPECT_EQ(parse_bin_width("512"), 512);
  for (const char* text : {"", "0", "-1", "ln", "5x", "1e3"}) EXPECT_THROW(parse_bin_width(text), Error) << text;
}

}  // namespace
}  // namespace quire
