#include "data/sources/word_counter.h"

namespace quire {

namespace {

bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1C' && c <= '\x1F');
}

enum class Match { none, begins, whole };

// Matches U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F, U+3000 in UTF-8.
Match match_space(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const auto when = [](bool whole) { return whole ? Match::whole : Match::none; };
  if (bytes.size() == 1) return byte(0) == 0xC2 || (byte(0) >= 0xE1 && byte(0) <= 0xE3) ? Match::begins : Match::none;
  if (byte(0) == 0xC2) return when(byte(1) == 0x85 || byte(1) == 0xA0);
  const bool first_page = byte(0) == 0xE2 && byte(1) == 0x80;  // U+2000 to U+203F
  const bool second_page = byte(0) == 0xE2 && byte(1) == 0x81;
  const bool ogham = byte(0) == 0xE1 && byte(1) == 0x9A;
  const bool ideographic = byte(0) == 0xE3 && byte(1) == 0x80;
  if (bytes.size() == 2) return first_page || second_page || ogham || ideographic ? Match::begins : Match::none;
  if (first_page) {
    return when((byte(2) >= 0x80 && byte(2) <= 0x8A) || byte(2) == 0xA8 || byte(2) == 0xA9 || byte(2) == 0xAF);
  }
  return when(second_page ? byte(2) == 0x9F : byte(2) == 0x80);
}

}  // namespace

void WordCounter::take(bool space) {
  words_ += !space && !in_word_ ? 1 : 0;
  in_word_ = !space;
}

void WordCounter::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (static_cast<uint8_t>(c) < 0x80) {
      if (!pending_.empty()) take(false);
      pending_.clear();
      take(is_ascii_space(c));
      continue;
    }
    pending_ += c;
    const Match match = match_space(pending_);
    if (match == Match::begins) continue;
    take(match == Match::whole);
    // The byte that ends a failed match may itself begin a space.
    const bool begins = match == Match::none && pending_.size() > 1 && match_space({&c, 1}) == Match::begins;
    pending_.assign(begins ? 1 : 0, c);
  }
}

int64_t WordCounter::words() const {
  return words_ + (!pending_.empty() && !in_word_ ? 1 : 0);
}

}  // namespace quire
