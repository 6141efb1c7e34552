#include "layers/stacks/bm25.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace quire {

namespace {

// In the order of tokens, so that sums do not depend on anything else.
std::map<int32_t, double> counts(std::span<const int32_t> tokens) {
  std::map<int32_t, double> count;
  for (const int32_t token : tokens) ++count[token];
  return count;
}

}  // namespace

void Bm25::add(std::span<const int32_t> chunk) {
  const auto number = static_cast<int64_t>(lengths_.size());
  for (const auto& [token, count] : counts(chunk)) postings_[token].push_back({number, count});
  lengths_.push_back(static_cast<double>(chunk.size()));
}

std::vector<double> Bm25::scores(std::span<const int32_t> query) const {
  std::vector<double> scores(lengths_.size(), 0);
  const auto all = static_cast<int64_t>(lengths_.size()), known = std::min(all, window_);
  const auto chunks = static_cast<double>(known);
  const double mean = std::accumulate(lengths_.end() - known, lengths_.end(), 0.0) / std::max(chunks, 1.0);
  for (const auto& [token, times] : counts(query)) {
    const auto found = postings_.find(token);
    if (found == postings_.end()) continue;
    const std::vector<Posting>& postings = found->second;
    const auto first = std::ranges::lower_bound(postings, all - known, {}, &Posting::chunk);
    const auto having = static_cast<double>(postings.end() - first);
    const double idf = std::log1p((chunks - having + 0.5) / (having + 0.5)) * (config_.repeated ? times : 1);
    for (const Posting& posting : std::span(first, postings.end())) {
      const auto chunk = static_cast<size_t>(posting.chunk);
      const double length = 1 - config_.b + config_.b * lengths_[chunk] / mean;
      scores[chunk] += idf * posting.count * (config_.k1 + 1) / (posting.count + config_.k1 * length);
    }
  }
  return scores;
}

}  // namespace quire
