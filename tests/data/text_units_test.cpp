#include "data/sources/text_units.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

std::vector<std::string> units(std::string_view text) {
  std::vector<std::string> all;
  while (!text.empty()) {
    all.emplace_back(text.substr(0, first_unit(text)));
    text.remove_prefix(all.back().size());
  }
  return all;
}

TEST(TextUnits, AreLines) {
  EXPECT_EQ(units("one\ntwo\n\nthree"), (std::vector<std::string>{"one\n", "two\n", "\n", "three"}));
  EXPECT_EQ(whole_units("one\ntwo"), 4U);
  EXPECT_EQ(whole_units("one"), 0U);
}

TEST(TextUnits, LongLinesAreCutBeforeASpace) {
  const std::string word(1500, 'x');
  EXPECT_EQ(units(word + " " + word + " " + word + " y\n"),
            (std::vector<std::string>{word + " " + word, " " + word + " y\n"}));
  // The limit is exact.
  EXPECT_EQ(units(std::string(kLongestUnit, 'x') + "\n").size(), 1U);
  EXPECT_EQ(units(std::string(kLongestUnit, 'x') + " y"),
            (std::vector<std::string>{std::string(kLongestUnit, 'x'), " y"}));
  EXPECT_EQ(units(std::string(kLongestUnit, 'x')).size(), 1U);
  EXPECT_EQ(units(std::string(kLongestUnit + 1, 'x')).size(), 2U);
}

TEST(TextUnits, CharactersAreNotCut) {
  for (const std::string character : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    for (const size_t before : {0, 1, 2, 3}) {
      std::string text(before, 'x');
      while (text.size() < 3 * kLongestUnit) text += character;
      for (const std::string& unit : units(text)) {
        EXPECT_NE(static_cast<unsigned char>(unit[0]) & 0xC0U, 0x80U);
        EXPECT_GT(unit.size() + 4, unit == units(text).back() ? 0 : kLongestUnit);
      }
    }
  }
  // Text that is not UTF-8 is cut, too.
  EXPECT_GT(units(std::string(3 * kLongestUnit, '\x80')).size(), 2U);
}

TEST(TextUnits, DoNotDependOnHowATextArrives) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    std::string text;
    while (text.size() < 30'000) {
      const size_t length = random() % (round % 2 == 0 ? 20 : 6000);
      text += std::string(length, static_cast<char>('a' + random() % 26));
      text += random() % 20 == 0 ? "\n" : random() % 3 == 0 ? "\xE2\x82\xAC" : " ";
    }
    std::vector<std::string> pieces;
    std::string pending;
    for (size_t at = 0; at < text.size();) {
      const size_t count = 1 + random() % 5000;
      pending += text.substr(at, count);
      at += count;
      const size_t whole = whole_units(pending);
      for (std::string& unit : units(std::string_view(pending).substr(0, whole))) pieces.push_back(std::move(unit));
      pending.erase(0, whole);
      ASSERT_LE(pending.size(), kLongestUnit);
    }
    for (std::string& unit : units(pending)) pieces.push_back(std::move(unit));
    ASSERT_EQ(pieces, units(text));
  }
}

}  // namespace
}  // namespace quire
