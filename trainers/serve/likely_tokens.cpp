#include "trainers/serve/likely_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace quire {

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

std::vector<std::pair<int32_t, double>> likely_tokens(std::span<const float> logits, double log_sum, size_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = logits[static_cast<size_t>(a)];
                      const float y = logits[static_cast<size_t>(b)];
                      return x > y || (x == y && a < b);
                    });
  std::vector<std::pair<int32_t, double>> likely;
  for (size_t i = 0; i < count; ++i) {
    likely.emplace_back(ids[i], static_cast<double>(logits[static_cast<size_t>(ids[i])]) - log_sum);
  }
  return likely;
}

void append(TokenScores& scores, int32_t id, double log_probability, const std::vector<std::pair<int32_t, double>>& top,
            size_t top_count) {
  scores.ids.push_back(id);
  scores.log_probabilities.push_back(log_probability);
  scores.top_count = std::min(top_count, top.size());
  scores.top.insert(scores.top.end(), top.begin(), top.end());
}

void append_scored(TokenScores& scores, int32_t id, double log_probability, std::span<const float> logits,
                   size_t top_count) {
  if (top_count == 0) return append(scores, id, log_probability, {}, 0);
  const double log_sum = static_cast<double>(logits[static_cast<size_t>(id)]) - log_probability;
  std::vector<std::pair<int32_t, double>> top = likely_tokens(logits, log_sum, top_count);
  const float own = logits[static_cast<size_t>(id)];
  for (auto& [other, value] : top) {
    if (logits[static_cast<size_t>(other)] == own) value = log_probability;
  }
  append(scores, id, log_probability, top, top_count);
}

}  // namespace quire
