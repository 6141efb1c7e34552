#include "data/tasks/background.h"

#include <algorithm>

#include "core/check.h"
#include "data/sources/utf8.h"

namespace quire {

namespace {

constexpr int64_t kPiece = 4096;                 // tokens read at once
constexpr int64_t kWordless = int64_t{1} << 20;  // tokens without a word, after which nothing is hoped for
constexpr size_t kLongestWord = 128;             // bytes; longer ones are cut
constexpr int64_t kLongestSentence = 60;         // words

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

bool ends_sentence(std::string_view word) {
  constexpr std::string_view kClosing[] = {"\"", "'", ")", "]", "\xE2\x80\x9D", "\xE2\x80\x99", "_", "*"};
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view closing : kClosing) {
      if (!word.ends_with(closing)) continue;
      word.remove_suffix(closing.size());
      again = true;
    }
  }
  return word.ends_with('.') || word.ends_with('!') || word.ends_with('?');
}

}  // namespace

// Moves the whole words of rest_ to words_.
void BackgroundText::add_words() {
  size_t at = 0;
  for (;;) {
    while (at < rest_.size() && is_space(rest_[at])) ++at;
    size_t end = at;
    while (end < rest_.size() && end - at < kLongestWord && !is_space(rest_[end])) ++end;
    if (end == rest_.size()) break;
    while (end > at + 1 && is_within_character(rest_[end])) --end;
    words_.push_back(rest_.substr(at, end - at));
    at = end;
  }
  rest_.erase(0, at);
}

void BackgroundText::read_words(int64_t count) {
  if (read_ == 0 && count > 0) {
    // The text begins within a sentence, which is left out.
    begun_ = 0;
    read_more_words(kLongestSentence);
    const auto end = std::find_if(words_.begin(), words_.begin() + kLongestSentence, ends_sentence);
    begun_ = end - words_.begin() + 1;
  }
  read_more_words(begun_ + count);
}

void BackgroundText::read_more_words(int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(kPiece));
  int64_t last_word = read_;
  while (static_cast<int64_t>(words_.size()) < count) {
    filler_.tokens(read_, kPiece, ids.data());
    rest_ += tokenizer_.decode(ids);
    const size_t before = words_.size();
    add_words();
    read_ += kPiece;
    if (words_.size() > before) last_word = read_;
    if (read_ - last_word > kWordless) {
      fail(ErrorKind::data, "the text between the facts has no words in {} tokens; use another", kWordless);
    }
  }
}

int64_t BackgroundText::tokens_of(const std::string& text) const {
  std::vector<int32_t> ids;
  tokenizer_.encode(text, ids);
  return static_cast<int64_t>(ids.size());
}

std::vector<std::string> BackgroundText::sentences(int64_t words) {
  read_words(words);
  std::vector<std::string> sentences;
  int64_t in_sentence = 0;
  for (int64_t i = 0; i < words; ++i) {
    const std::string& word = words_[static_cast<size_t>(begun_ + i)];
    if (in_sentence++ == 0) {
      sentences.push_back(word);
    } else {
      sentences.back() += ' ';
      sentences.back() += word;
    }
    if (ends_sentence(word) || in_sentence == kLongestSentence) in_sentence = 0;
  }
  return sentences;
}

}  // namespace quire
