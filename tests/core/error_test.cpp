#include "core/check.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace quire {
namespace {

TEST(Error, RepeatsLittleOfALongText) {
  EXPECT_EQ(shortened("a\nb\tc\x1B[2J\x7F"), "a b c [2J ");
  EXPECT_EQ(shortened(std::string(kLongestQuote, 'x')), std::string(kLongestQuote, 'x'));
  const std::string text = "begin " + std::string(100'000, 'x') + " end";
  EXPECT_EQ(shortened(text), "begin " + std::string(129, 'x') + " ... " + std::string(56, 'x') + " end");
  // Characters stay whole.
  for (size_t before = 0; before < 4; ++before) {
    std::string many(before, 'x');
    while (many.size() < 1000) many += "\xE4\xB8\xAD";
    const std::string part = shortened(many);
    EXPECT_LE(part.size(), kLongestQuote);
    const size_t gap = part.find(" ... ");
    EXPECT_EQ((gap - before) % 3, 0U);
    EXPECT_EQ((part.size() - gap - 5) % 3, 0U);
  }
}

TEST(Error, StringsAreShortenedAndOtherMessagesAreNot) {
  const std::string text(5000, 'x');
  const auto message_of = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string inner = message_of([&] { fail(ErrorKind::data, "{} and {}", text, std::string_view(text)); });
  EXPECT_EQ(inner.size(), 2 * kLongestQuote + 5);
  EXPECT_EQ(message_of([&] { fail(ErrorKind::data, "{}: {}", 7, inner.c_str()); }), "7: " + inner);
}

}  // namespace
}  // namespace quire
