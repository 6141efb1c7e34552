// Texts of tokens as a client of the server sees them: BOS and EOS have names, which prompts may hold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace quire {

class TokenTexts {
 public:
  // The tokenizer must outlive this. Where it has no names for BOS and EOS they are <|bos|> and <|eos|>.
  explicit TokenTexts(const Tokenizer& tokenizer);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::string& bos() const { return bos_; }
  const std::string& eos() const { return eos_; }

  // Returns the ids of a text, in which the names of special tokens become these tokens. follows: the text goes on with
  // an earlier one.
  std::vector<int32_t> encode(std::string_view text, bool follows) const;
  // Returns the text of one token, BOS and EOS by name. Throws Error(data) for an id beyond the vocabulary.
  std::string text_of(int32_t id) const;
  std::string text_of(std::span<const int32_t> ids) const;

 private:
  void encode_part(std::string_view text, bool follows, std::vector<int32_t>& ids) const;

  const Tokenizer& tokenizer_;
  std::string bos_;
  std::string eos_;
  bool finds_names_;  // the tokenizer finds the names by itself
};

// Returns the text as JSON, quoted; bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view text);
// Returns the text of a token as JSON. Bytes of a part of a character are written as OpenAI does, "bytes:\xe2\x80", so
// that different tokens have different texts.
std::string json_token(std::string_view text);

// Counts the characters of a text that comes in pieces, as json_text() writes them.
class CharacterCount {
 public:
  void add(std::string_view text);
  // Characters before the one that is not complete yet.
  int64_t whole() const { return whole_; }

 private:
  int64_t whole_ = 0;
  int missing_ = 0;                             // bytes of a character that has begun
  unsigned min_next_ = 0x80, max_next_ = 0xBF;  // of the next one
};

}  // namespace quire
