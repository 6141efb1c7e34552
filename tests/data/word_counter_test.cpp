#include "data/sources/word_counter.h"

#include <gtest/gtest.h>
#include <utf8.h>

#include <algorithm>
#include <vector>

namespace quire {
namespace {

int64_t words_in(std::string_view text, size_t piece = 1000) {
  WordCounter counter;
  for (size_t at = 0; at < text.size(); at += piece) counter.feed(text.substr(at, piece));
  return counter.words();
}

// Returns true for the characters for which Python's str.isspace() is true.
bool is_space(uint32_t character) {
  static const std::vector<uint32_t> single{0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  return (character >= 0x09 && character <= 0x0D) || (character >= 0x1C && character <= 0x1F) ||
         (character >= 0x2000 && character <= 0x200A) ||
         std::find(single.begin(), single.end(), character) != single.end();
}

TEST(WordCounter, EveryCharacterIsSpaceOrNot) {
  for (uint32_t character = 0; character < 0x11000; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;
    std::string text = "a";
    utf8::append(static_cast<char32_t>(character), text);
    ASSERT_EQ(words_in(text + "b"), is_space(character) ? 2 : 1) << character;
    ASSERT_EQ(words_in(text.substr(1)), is_space(character) ? 0 : 1) << character;
  }
}

TEST(WordCounter, WordsAreThoseOfTheWholeText) {
  const std::string text =
      "one\xE2\x80\x83two\xC2\xA0\xC2\x85three \xE3\x80\x80\xE4\xB8\xAD\xE6\x96\x87\xE3\x80\x81\xE4\xB8\xAD "
      "\xE2\x80\x94 "
      "\xC2\xE2\x80\x80x \xE1\x9A\xE2\x80\xA8y\xE2\x80";
  for (const size_t piece : {1, 2, 3, 5, 1000}) EXPECT_EQ(words_in(text, piece), 9) << piece;
  EXPECT_EQ(words_in(""), 0);
  EXPECT_EQ(words_in(" \n"), 0);
  EXPECT_EQ(words_in("\xE2\x80"), 1);  // the beginning of a space is none
  WordCounter counter;
  counter.feed("a\xC2");
  EXPECT_EQ(counter.words(), 1);
  counter.feed("\xA0");
  EXPECT_EQ(counter.words(), 1);
  counter.feed("b");
  EXPECT_EQ(counter.words(), 2);
}

}  // namespace
}  // namespace quire
