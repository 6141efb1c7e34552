#include "data/batches/dealt_share.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace quire {

DealtShare dealt_share(const ReadingList& list, const BatchOptions& options, int64_t steps, int64_t max_documents) {
  const int64_t unit = options.data.pack == Pack::pad ? options.data.subsequence : options.alignment;
  const int64_t end =
      steps > INT64_MAX / 2 / options.data.subsequence ? INT64_MAX / 2 : steps * options.data.subsequence;
  using Free = std::pair<int64_t, int64_t>;  // position since the first step, row
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  for (int64_t row = 0; row < options.data.rows; ++row) free.emplace(0, row);
  DealtShare share;
  while (free.top().first < end && share.documents < max_documents) {
    const auto [begin, row] = free.top();
    free.pop();
    const int64_t length = options.insertion.positions(list.tokens_with_bos(list.document(share.documents)));
    share.tokens += options.insertion.tokens_before(std::min(length, end - begin));
    ++share.documents;
    free.emplace((begin + length + unit - 1) / unit * unit, row);
  }
  if (free.top().first >= end) return share;
  double reached = 0;
  for (; !free.empty(); free.pop()) reached += static_cast<double>(std::min(free.top().first, end));
  const double factor = static_cast<double>(end) * static_cast<double>(options.data.rows) / reached;
  share.tokens = std::llround(static_cast<double>(share.tokens) * factor);
  share.documents = std::llround(static_cast<double>(share.documents) * factor);
  share.exact = false;
  return share;
}

}  // namespace quire
