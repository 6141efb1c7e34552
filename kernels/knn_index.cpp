#include "kernels/knn_index.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/bfloat16.h"
#include "core/check.h"
#include "core/float8.h"
#include "kernels/backend.h"

namespace quire {

namespace {

LearnInvertedLists& learner() {
  static LearnInvertedLists learn = nullptr;
  return learn;
}

// FAISS needs at least this many entries per centroid to train.
constexpr int64_t kEntriesOfList = 39;

}  // namespace

void register_inverted_lists(LearnInvertedLists learn) {
  learner() = learn;
}

ReadEntries read_entries(const ops::KnnMemory& memory, int64_t row, int64_t kv_head, int64_t written) {
  const int64_t slots = memory.keys.dim(1);
  const int64_t size = memory.keys.dim(3);
  const int64_t head = memory.head.data<int32_t>()[row];
  const int64_t length = memory.length.data<int32_t>()[row];
  return [=, keys = memory.keys, scales = memory.key_scale](float* to, int64_t first, int64_t count) {
    QUIRE_CHECK(first >= written - length && first + count <= written, "knn index: entries {} to {} of {}, {} readable",
                first, first + count, written, length);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t slot = (head - (written - first - i) + slots) % slots;
      const int64_t vector = (row * slots + slot) * keys.dim(2) + kv_head;
      float* const line = to + i * size;
      if (keys.dtype() == DType::f32) {
        std::copy_n(keys.data<float>() + vector * size, size, line);
      } else if (keys.dtype() == DType::bf16) {
        const bfloat16* const from = keys.data<bfloat16>() + vector * size;
        for (int64_t d = 0; d < size; ++d) line[d] = static_cast<float>(from[d]);
      } else if (keys.dtype() == DType::i8) {
        const auto scale = static_cast<float>(scales.data<bfloat16>()[vector]);
        const int8_t* const from = keys.data<int8_t>() + vector * size;
        for (int64_t d = 0; d < size; ++d) line[d] = scale * static_cast<float>(from[d]);
      } else if (keys.dtype() == DType::f8) {
        const auto scale = static_cast<float>(scales.data<bfloat16>()[vector]);
        const float8* const from = keys.data<float8>() + vector * size;
        for (int64_t d = 0; d < size; ++d) line[d] = scale * static_cast<float>(from[d]);
      } else {
        fail(ErrorKind::internal, "knn index: keys stored as {}", name_of(keys.dtype()));
      }
    }
  };
}

KnnIndex::KnnIndex(const KnnIndexOptions& options) : options_(options) {
  const std::string reason = load_faiss().reason;
  if (learner() == nullptr) fail(ErrorKind::config, "an inverted file needs FAISS: {}", reason);
  if (options.size < 1 || options.lists < 1 || options.period < 1 || options.period >= options.capacity) {
    fail(ErrorKind::config,
         "an inverted file of {} lists, learned every {} entries, for a memory of {}: the period must be "
         "at least 1 and below the memory's size",
         options.lists, options.period, options.capacity);
  }
}

void KnnIndex::clear() {
  lists_.reset();
  learned_at_ = 0;
  written_ = 0;
}

void KnnIndex::update(int64_t written, const ReadEntries& read) {
  QUIRE_CHECK(written >= written_, "knn index: {} entries after {}", written, written_);
  const int64_t oldest = std::max<int64_t>(0, written - options_.capacity);
  const int64_t learn_at = written / options_.period * options_.period;
  std::vector<float> keys;
  const auto entries = [&](int64_t first, int64_t end) {
    keys.resize(static_cast<size_t>((end - first) * options_.size));
    read(keys.data(), first, end - first);
    return keys.data();
  };
  int64_t next = std::max(oldest, written_);
  if (learn_at > learned_at_) {
    const int64_t first = std::max<int64_t>(0, learn_at - options_.capacity + options_.period);
    const int64_t lists = std::clamp<int64_t>((learn_at - first) / kEntriesOfList, 1, options_.lists);
    lists_ = learner()(entries(first, learn_at), learn_at - first, options_.size, lists);
    learned_at_ = learn_at;
    next = oldest;
  }
  written_ = written;
  if (lists_ == nullptr) return;
  // Entries are added in pieces, so that not all of them are copied at once.
  constexpr int64_t kAtOnce = 16384;
  for (; next < written; next = std::min(written, next + kAtOnce)) {
    const int64_t end = std::min(written, next + kAtOnce);
    lists_->add(entries(next, end), next, end - next);
  }
}

void KnnIndex::search(int32_t* index, float* score, const float* q, int64_t queries, int64_t top_k, int64_t probes,
                      const ReadEntries& read) const {
  QUIRE_CHECK(is_ready(), "knn index: searched before its centres were learned");
  const int64_t oldest = std::max<int64_t>(0, written_ - options_.capacity);
  std::vector<int64_t> numbers(static_cast<size_t>(queries * top_k));
  lists_->search(numbers.data(), q, queries, top_k, probes, oldest, written_);
  std::vector<float> key(static_cast<size_t>(options_.size));
  std::vector<std::pair<float, int64_t>> found;
  for (int64_t n = 0; n < queries; ++n) {
    found.clear();
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t number = numbers[static_cast<size_t>(n * top_k + k)];
      if (number < 0) continue;
      read(key.data(), number, 1);
      float sum = 0;
      for (int64_t d = 0; d < options_.size; ++d)
        sum = std::fma(q[n * options_.size + d], key[static_cast<size_t>(d)], sum);
      found.emplace_back(sum, number);
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      const bool numbers_differ = std::isnan(a.first) != std::isnan(b.first);
      if (numbers_differ) return std::isnan(b.first);
      return a.first > b.first || (!(b.first > a.first) && a.second < b.second);
    });
    for (int64_t k = 0; k < top_k; ++k) {
      const bool there = k < static_cast<int64_t>(found.size());
      index[n * top_k + k] = there ? static_cast<int32_t>(found[static_cast<size_t>(k)].second - oldest) : -1;
      score[n * top_k + k] = there ? found[static_cast<size_t>(k)].first : 0;
    }
  }
}

double recall(const int32_t* found, const int32_t* exact, int64_t queries, int64_t top_k) {
  int64_t all = 0;
  int64_t both = 0;
  for (int64_t n = 0; n < queries; ++n) {
    std::vector<int32_t> other(found + n * top_k, found + (n + 1) * top_k);
    std::sort(other.begin(), other.end());
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t entry = exact[n * top_k + k];
      if (entry < 0) continue;
      ++all;
      both += std::binary_search(other.begin(), other.end(), entry) ? 1 : 0;
    }
  }
  return all == 0 ? 1 : static_cast<double>(both) / static_cast<double>(all);
}

}  // namespace quire
