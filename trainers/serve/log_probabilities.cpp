#include "trainers/serve/log_probabilities.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace quire {

namespace {

void add_to(std::string& list, std::string_view value) {
  if (!list.empty()) list += ',';
  list += value;
}

}  // namespace

void LogProbabilities::add_token(int32_t id) {
  const std::string text = texts_.text_of(id);
  add_to(tokens_, json_token(text));
  add_to(offsets_, fmt::format("{}", text_.whole()));
  text_.add(text);
}

void LogProbabilities::add_unscored(int32_t id) {
  add_token(id);
  add_to(values_, "null");
  add_to(top_, "null");
}

// Equal texts of different tokens share an entry, which is that of the most likely one.
std::string LogProbabilities::top_json(const TokenScores& scores, size_t token) const {
  std::string json = "{";
  std::vector<std::string> names;
  for (size_t i = token * scores.top_count; i < (token + 1) * scores.top_count; ++i) {
    std::string name = json_token(texts_.text_of(scores.top[i].first));
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    json += fmt::format("{}{}:{}", names.empty() ? "" : ",", name, scores.top[i].second);
    names.push_back(std::move(name));
  }
  return json + "}";
}

void LogProbabilities::add(const TokenScores& scores, size_t begin, size_t end) {
  has_top_ = has_top_ || scores.top_count > 0;
  for (size_t token = begin; token < end; ++token) {
    add_token(scores.ids[token]);
    add_to(values_, fmt::format("{}", scores.log_probabilities[token]));
    add_to(top_, top_json(scores, token));
  }
}

std::string LogProbabilities::json() const {
  const std::string top = has_top_ ? "[" + top_ + "]" : "null";
  return "{\"tokens\":[" + tokens_ + "],\"token_logprobs\":[" + values_ + "],\"top_logprobs\":" + top +
         ",\"text_offset\":[" + offsets_ + "]}";
}

}  // namespace quire
