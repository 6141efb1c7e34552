#include "data/tokenizers/text_normalizer.h"

#include <utf8.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/check.h"

namespace quire {

namespace {

bool is_ascii(char c) {
  return static_cast<uint8_t>(c) < 0x80;
}

void append_composed(std::string_view text, utf8proc_option_t options, std::string& out) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0) fail(ErrorKind::data, "a text cannot be normalised: {}", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
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
      append_composed(std::string_view(&*begin, static_cast<size_t>(invalid - begin)), options, out);
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
