#include "trainers/serve/token_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/sources/utf8.h"

namespace quire {

namespace {

bool is_utf8(std::string_view text) {
  Utf8Validator validator;
  return !validator.feed(text) && !validator.finish();
}

}  // namespace

TokenTexts::TokenTexts(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  const int32_t bos = tokenizer.bos_id();
  const int32_t eos = tokenizer.eos_id();
  bos_ = tokenizer.decode_with_specials({&bos, 1});
  eos_ = tokenizer.decode_with_specials({&eos, 1});
  std::vector<int32_t> ids;
  tokenizer.encode_with_specials(bos_ + eos_, ids);
  finds_names_ = !bos_.empty() && !eos_.empty() && ids == std::vector{bos, eos};
  if (finds_names_) return;
  bos_ = bos == eos ? "<|eos|>" : "<|bos|>";
  eos_ = "<|eos|>";
}

void TokenTexts::encode_part(std::string_view text, bool follows, std::vector<int32_t>& ids) const {
  if (follows) {
    tokenizer_.encode_rest(text, ids);
  } else {
    tokenizer_.encode(text, ids);
  }
}

std::vector<int32_t> TokenTexts::encode(std::string_view text, bool follows) const {
  std::vector<int32_t> ids;
  if (finds_names_ && !follows) {
    tokenizer_.encode_with_specials(text, ids);
    return ids;
  }
  size_t begin = 0;
  size_t bos = text.find(bos_);
  size_t eos = text.find(eos_);
  for (;;) {
    const size_t at = std::min({bos, eos, text.size()});
    encode_part(text.substr(begin, at - begin), follows, ids);
    if (at == text.size()) break;
    const bool is_bos = at == bos;
    ids.push_back(is_bos ? tokenizer_.bos_id() : tokenizer_.eos_id());
    // BOS begins a document, whose text begins behind it.
    follows = follows || at > 0 || !is_bos;
    begin = at + (is_bos ? bos_ : eos_).size();
    // Each name is looked for from where it was found last, so that many of one cost no search for the other.
    if (bos < begin) bos = text.find(bos_, begin);
    if (eos < begin) eos = text.find(eos_, begin);
  }
  return ids;
}

std::string TokenTexts::text_of(int32_t id) const {
  if (id == tokenizer_.bos_id()) return bos_;
  if (id == tokenizer_.eos_id()) return eos_;
  return tokenizer_.decode({&id, 1});
}

std::string TokenTexts::text_of(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += text_of(id);
  return text;
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_token(std::string_view text) {
  if (is_utf8(text)) return json_text(text);
  std::string bytes = "\"bytes:";
  for (const char c : text) bytes += fmt::format("\\\\x{:02x}", static_cast<unsigned char>(c));
  return bytes + "\"";
}

void CharacterCount::add(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (missing_ > 0 && byte >= min_next_ && byte <= max_next_) {
      whole_ += --missing_ == 0 ? 1 : 0;
      min_next_ = 0x80, max_next_ = 0xBF;
      continue;
    }
    whole_ += missing_ > 0 ? 1 : 0;  // what had begun is one U+FFFD
    missing_ = byte >= 0xC2 && byte <= 0xDF   ? 1
               : byte >= 0xE0 && byte <= 0xEF ? 2
               : byte >= 0xF0 && byte <= 0xF4 ? 3
                                              : 0;
    whole_ += missing_ == 0 ? 1 : 0;
    // These begin no shorter spelling of a character, no surrogate, and nothing beyond U+10FFFF.
    min_next_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    max_next_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  }
}

}  // namespace quire
