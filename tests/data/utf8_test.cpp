#include "data/sources/utf8.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

std::optional<int64_t> validate(std::string_view text, size_t chunk) {
  Utf8Validator validator;
  for (size_t begin = 0; begin < text.size(); begin += chunk) {
    if (const auto wrong = validator.feed(text.substr(begin, chunk))) return wrong;
  }
  return validator.finish();
}

TEST(Utf8, GivesTheSameOffsetHoweverTheTextIsCut) {
  struct Case {
    std::string text;
    std::optional<int64_t> wrong;
  };
  const std::vector<Case> cases{
      {"", std::nullopt},
      {"plain", std::nullopt},
      {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80.", std::nullopt},
      {std::string("a\0b", 3), std::nullopt},
      {"ab\xFFxyz", 2},
      {"ab\x80xyz", 2},                    // a continuation byte alone
      {"abc\xC3(", 3},                     // a lead byte without continuation
      {"a\xE2\x82", 1},                    // cut off at the end
      {"a\xF0\x9F\x98", 1},                // the same, four bytes
      {"\xC0\xAF", 0},                     // overlong
      {"x\xED\xA0\x80y", 1},               // a surrogate
      {"x\xF4\x90\x80\x80y", 1},           // beyond U+10FFFF
      {"\xC3\xA9\xC3\xA9\xE2\x28\xA1", 4}  // after valid ones
  };
  for (const Case& c : cases) {
    for (size_t chunk = 1; chunk <= 8; ++chunk) {
      EXPECT_EQ(validate(c.text, chunk), c.wrong) << testing::PrintToString(c.text) << " in chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace quire
