// Writes the lists of a reply's logprobs as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "trainers/serve/choice.h"
#include "trainers/serve/token_texts.h"

namespace quire {

class LogProbabilities {
 public:
  // `before`: the reply's text before the first token.
  LogProbabilities(const TokenTexts& texts, CharacterCount before) : texts_(texts), text_(before) {}

  void add_unscored(int32_t id);
  // Adds tokens [begin, end) of the scores.
  void add(const TokenScores& scores, size_t begin, size_t end);
  // Counts the text of the reply up to the last token that was added.
  const CharacterCount& text() const { return text_; }
  std::string json() const;

 private:
  void add_token(int32_t id);
  std::string top_json(const TokenScores& scores, size_t token) const;

  const TokenTexts& texts_;
  CharacterCount text_;
  bool has_top_ = false;
  std::string tokens_;
  std::string values_;
  std::string top_;
  std::string offsets_;
};

}  // namespace quire
