// Finds the most likely tokens at a place of a text, and their log probabilities in nats.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "trainers/serve/choice.h"

namespace quire {

inline constexpr const char* kNotFinite = "the model's output is not finite; its weights overflow";

// Returns log(sum(exp(logits))).
double log_sum_exp(std::span<const float> logits);
// Returns up to `count` ids with logit - log_sum, the largest first; ties go to the lower id.
std::vector<std::pair<int32_t, double>> likely_tokens(std::span<const float> logits, double log_sum, size_t count);

// Appends a token, its log probability and the `top_count` most likely tokens at its place.
void append(TokenScores& scores, int32_t id, double log_probability, const std::vector<std::pair<int32_t, double>>& top,
            size_t top_count);
// Does the same for a token whose probability is known. The most likely tokens have theirs relative to it, so that a
// token that is the most likely one has the same digits in both places.
void append_scored(TokenScores& scores, int32_t id, double log_probability, std::span<const float> logits,
                   size_t top_count);

}  // namespace quire
