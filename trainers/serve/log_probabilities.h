// The lists of a reply's logprobs, as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "trainers/serve/choice.h"
#include "trainers/serve/token_texts.h"

namespace quire {

class LogProbabilities {
 public:
  // `offset`: characters of the reply's text before the first token.
  LogProbabilities(const TokenTexts& texts, int64_t offset) : texts_(texts), offset_(offset) {}

  void add_unscored(int32_t id);
  // Tokens [begin, end) of the scores.
  void add(const TokenScores& scores, size_t begin, size_t end);
  // Characters of the text up to here.
  int64_t offset() const { return offset_; }
  std::string json() const;

 private:
  void add_token(int32_t id);
  std::string top_json(const TokenScores& scores, size_t token) const;

  const TokenTexts& texts_;
  int64_t offset_;
  bool has_top_ = false;
  std::string tokens_;
  std::string values_;
  std::string top_;
  std::string offsets_;
};

}  // namespace quire
