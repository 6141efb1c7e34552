#include "data/tokenizers/text_normalizer.h"

#include <utf8.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "core/check.h"

namespace quire {

namespace {

bool is_ascii(char c) {
  return static_cast<uint8_t>(c) < 0x80;
}

struct CharacterRange {
  char32_t first;
  char32_t last;
};

// Characters that compose, or are put in order, since a Unicode above 9, which is that of the package `tokenizers`
// (0.23.3): the ids of models were made without.
constexpr CharacterRange kLaterCharacters[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};

bool came_later(char32_t character) {
  const auto* at = std::upper_bound(std::begin(kLaterCharacters), std::end(kLaterCharacters), character,
                                    [](char32_t value, const CharacterRange& range) { return value < range.first; });
  return at != std::begin(kLaterCharacters) && character <= std::prev(at)->last;
}

void append_composed(std::string_view text, utf8proc_option_t options, std::string& out) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0) fail(ErrorKind::data, "a text cannot be normalised: {}", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
}

// Normalises between the characters that came later, which nothing passes or joins.
void append_between_later(std::string_view text, utf8proc_option_t options, std::string& out) {
  const char* done = text.data();
  const char* const end = text.data() + text.size();
  for (const char* at = done; at != end;) {
    const char* const begin = at;
    if (!came_later(static_cast<char32_t>(utf8::unchecked::next(at)))) continue;
    append_composed(std::string_view(done, static_cast<size_t>(begin - done)), options, out);
    out.append(begin, at);
    done = at;
  }
  append_composed(std::string_view(done, static_cast<size_t>(end - done)), options, out);
}

// An ASCII character is in both forms and composes with nothing before it, so the text is normalised from one ASCII
// character to the next; most of it has nothing else.
void compose(std::string& text, utf8proc_option_t options) {
  auto at = std::find_if_not(text.begin(), text.end(), is_ascii);
  if (at == text.end()) return;
  std::string out;
  out.reserve(text.size());
  auto copied = text.begin();
  while (at != text.end()) {
    auto begin = at == copied ? at : at - 1;
    const auto end = std::find_if(at, text.end(), is_ascii);
    out.append(copied, begin);
    while (begin != end) {
      const auto invalid = utf8::find_invalid(begin, end);
      append_between_later(std::string_view(&*begin, static_cast<size_t>(invalid - begin)), options, out);
      begin = invalid;
      if (begin != end) out += *begin++;
    }
    copied = end;
    at = std::find_if_not(end, text.end(), is_ascii);
  }
  out.append(copied, text.end());
  text = std::move(out);
}

}  // namespace

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  size_t copied = 0;
  for (; at != std::string::npos; at = text.find(from, copied)) {
    out.append(text, copied, at - copied).append(to);
    copied = at + from.size();
  }
  out.append(text, copied);
  text = std::move(out);
}

bool TextNormalizer::composes() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const NormalizerStep& step) { return step.kind < NormalizerStep::Kind::prepend; });
}

bool TextNormalizer::prepends() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const NormalizerStep& step) { return step.kind == NormalizerStep::Kind::prepend; });
}

void TextNormalizer::normalize(std::string& text, bool follows) const {
  if (text.empty()) return;
  for (const NormalizerStep& step : steps_) {
    if (step.kind == NormalizerStep::Kind::prepend) {
      if (!follows) text.insert(0, step.to);
    } else if (step.kind == NormalizerStep::Kind::replace) {
      replace_all(text, step.from, step.to);
    } else {
      const auto form = step.kind == NormalizerStep::Kind::nfc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
      compose(text, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
    }
  }
}

}  // namespace quire
