#include "layers/stacks/bm25.h"

#include <algorithm>
#include <cmath>
#include <map>

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
  const auto number = static_cast<int64_t>(ends_.size()) - 1;
  for (const auto& [token, count] : counts(chunk)) postings_[token].push_back({number, count});
  ends_.push_back(ends_.back() + static_cast<double>(chunk.size()));
}

std::vector<double> Bm25::scores(std::span<const int32_t> query, int64_t before, int64_t first, int64_t last) const {
  std::vector<double> scores(static_cast<size_t>(last - first), 0);
  const int64_t known = std::max<int64_t>(0, before - window_);  // from this chunk on
  const auto chunks = static_cast<double>(before - known);
  const double length_of_known = ends_[static_cast<size_t>(before)] - ends_[static_cast<size_t>(known)];
  const double mean = length_of_known / std::max(chunks, 1.0);
  for (const auto& [token, times] : counts(query)) {
    const auto found = postings_.find(token);
    if (found == postings_.end()) continue;
    const auto from = [&](int64_t chunk) {
      return std::ranges::lower_bound(found->second, chunk, {}, &Posting::chunk);
    };
    const auto having = static_cast<double>(from(before) - from(known));
    const double idf = std::log1p((chunks - having + 0.5) / (having + 0.5)) * (config_.repeated ? times : 1);
    const auto end = from(std::min(last, before));
    for (auto posting = from(std::max(first, known)); posting < end; ++posting) {
      const auto chunk = static_cast<size_t>(posting->chunk);
      const double length = 1 - config_.b + config_.b * (ends_[chunk + 1] - ends_[chunk]) / mean;
      scores[chunk - static_cast<size_t>(first)] +=
          idf * posting->count * (config_.k1 + 1) / (posting->count + config_.k1 * length);
    }
  }
  return scores;
}

}  // namespace quire
