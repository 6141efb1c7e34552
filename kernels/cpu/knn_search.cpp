// Search of an external memory. Blocks of keys are converted and transposed once for many queries; tiles of scores stay
// in the first-level cache until they have been compared with the worst of each query's best.
#include "kernels/cpu/knn_best.h"
#include "kernels/cpu/knn_filter.h"
#include "kernels/cpu/knn_memory.h"

namespace quire::cpu {

namespace {

// The keys of a block, which stay in the second-level cache while all queries read them.
constexpr int64_t kKeyBytes = int64_t{160} << 10;
constexpr int64_t kKeys = 512;
// The largest number of queries of one unit of work: 512, rounded up to whole tiles. A unit has fewer where each thread
// would otherwise not get kUnitsOfThread units; every unit reads, converts and transposes all keys of its head.
constexpr int64_t kQueries = (512 + kTileRows - 1) / kTileRows * int64_t{kTileRows};
constexpr int64_t kFewestQueries = 4 * int64_t{kTileRows};
constexpr int64_t kUnitsOfThread = 4;

// Finds the best entry of each of K buckets.
template <typename T>
class BestOfBuckets {
 public:
  BestOfBuckets(int slot, int64_t queries, int64_t top_k)
      : top_k_(top_k), scores_(scratch<T>(slot, queries * top_k)), entries_(scratch<int32_t>(slot, queries * top_k)) {
    std::fill(entries_, entries_ + queries * top_k, -1);
    std::fill(scores_, scores_ + queries * top_k, T{0});
  }

  void offer(int64_t query, const T* scores, int64_t first, int64_t count) {
    for (int64_t done = 0; done < count;) {
      const int64_t bucket = (first + done) % top_k_;
      const int64_t run = std::min(count - done, top_k_ - bucket);
      T* const best = scores_ + query * top_k_ + bucket;
      int32_t* const entries = entries_ + query * top_k_ + bucket;
      const auto entry = static_cast<int32_t>(first + done);
      for (int32_t j = 0; j < static_cast<int32_t>(run); ++j) {
        // Any number beats a NaN; the first entry of a bucket beats an empty bucket.
        const T x = scores[done + j];
        const int beats = static_cast<int>(entries[j] < 0) | static_cast<int>(x > best[j]) |
                          (static_cast<int>(best[j] != best[j]) & static_cast<int>(x == x));
        best[j] = beats != 0 ? x : best[j];
        entries[j] = beats != 0 ? entry + j : entries[j];
      }
      done += run;
    }
  }

  void finish(int64_t query, int32_t* entries, T* scores) const {
    std::copy_n(entries_ + query * top_k_, top_k_, entries);
    std::copy_n(scores_ + query * top_k_, top_k_, scores);
  }

 private:
  int64_t top_k_;
  T* scores_;
  int32_t* entries_;
};

// Packs entries [first, first + count) into panels [width, kPanel] that are kPanelGap apart; absent keys are zero.
template <typename T, typename S>
void pack_keys(T* to, const StoredVectors<T, S>& keys, int64_t first, int64_t count) {
  constexpr int64_t kWidth = kLanes<T>;
  T* const room = scratch<T>(9, kWidth * keys.width());
  for (int64_t j = 0; j < count; j += kPanel<T>) {
    for (int64_t x = 0; x < kPanel<T>; x += kWidth) {
      const int64_t some = std::clamp<int64_t>(count - j - x, 0, kWidth);
      const auto rows = some > 0 ? keys.rows(first + j + x, some, room) : typename StoredVectors<T, S>::Rows{room, 0};
      transpose_rows(to + x, kPanel<T>, rows.data, rows.stride, some, keys.width());
    }
    to += kPanel<T> * keys.width() + kPanelGap<T>;
  }
}

// Queries [first, first + count) of a row and key head; the heads of the group are counted first, then the tokens.
template <typename T, typename S>
class Unit {
 public:
  Unit(const Tensor& q, const ops::KnnMemory& memory, const KnnSizes& s, int64_t row, int64_t kv_head, int64_t first,
       int64_t count)
      : keys_("knn_search", memory.keys, memory.key_scale, memory, row, kv_head),
        s_(s),
        row_(row),
        kv_head_(kv_head),
        first_(first),
        count_(count),
        queries_(scratch<T>(0, count * s.size)),
        panel_size_(kPanel<T> * s.size + kPanelGap<T>),
        panels_(std::clamp<int64_t>(kKeyBytes / (panel_size_ * static_cast<int64_t>(sizeof(T))), 1, kKeys / kPanel<T>)),
        packed_(scratch<T>(8, panels_ * panel_size_)) {
    for (int64_t n = 0; n < count; ++n) {
      std::copy_n(q.data<T>() + line(n) * s.size, s.size, queries_ + n * s.size);
    }
  }

  template <typename Best>
  void search_all(Best& best) const {
    for_blocks([&](int64_t begin, int64_t block) { search_block(best, begin, block); });
  }

#if defined(__AVX512F__)
  // Finds the same result: it scores only the keys that pass the filter, as long as the filter lets few pass.
  void search_filtered(BestOfMany<T>& best) const {
    KnnFilter filter(queries_, count_, s_.size);
    Pending pending(*this, best, filter);
    constexpr int64_t kPause = 8;  // blocks without the filter after it did not help
    // At first there are no limits, so everything would pass. A memory of so few blocks costs more to filter than to
    // score.
    int64_t without = 3;
    for_blocks([&](int64_t begin, int64_t block) {
      if (without > 0 || !filter.load(keys_, begin, block)) {
        without = std::max<int64_t>(without - 1, 0);
        pending.finish();  // because entries must come in order of age
        search_block(best, begin, block);
        return;
      }
      best.tighten(count_);
      filter.set_limits(best.limits());
      int64_t passed = 0;
      int64_t next = begin + block;  // keys of the next block are prefetched one by one
      for_row_tiles(count_, [&](int64_t query, int64_t rows) {
        for (int64_t j = 0; j < block; j += kPanel<T>) {
          uint32_t hits[16];
          if (next < keys_.length()) keys_.prefetch(keys_.slot(next++));
          uint32_t found = filter.run(query, rows, j / kPanel<T>, hits);
          const int64_t columns = std::min<int64_t>(kPanel<T>, block - j);
          const auto there = static_cast<uint32_t>((uint64_t{1} << columns) - 1);
          for (; found != 0; found &= found - 1) {
            const int r = std::countr_zero(found);
            passed += pending.add(query + r, begin + j, hits[r] & there);
          }
        }
      });
      if (passed * 12 > count_ * block) without = kPause;
    });
    pending.finish();
  }
#endif

  template <typename Best>
  void write(Best& best, const Tensor& index, const Tensor& score) const {
    for (int64_t n = 0; n < count_; ++n) {
      const int64_t at = line(n) * s_.top_k;
      best.finish(n, index.data<int32_t>() + at, score.data<T>() + at);
    }
  }

 private:
#if defined(__AVX512F__)
  // Entries that passed the filter. They are scored as many at a time as a vector has lanes.
  class Pending {
   public:
    Pending(const Unit& unit, BestOfMany<T>& best, KnnFilter& filter)
        : unit_(unit),
          best_(best),
          filter_(filter),
          entries_(scratch<int32_t>(13, unit.count_ * kWidth)),
          counts_(scratch<int32_t>(14, unit.count_)) {
      std::fill(counts_, counts_ + unit.count_, 0);
    }

    int64_t add(int64_t query, int64_t first, uint32_t hits) {
      const int64_t number = std::popcount(hits);
      for (; hits != 0; hits &= hits - 1) {
        const int64_t entry = first + std::countr_zero(hits);
        unit_.keys_.prefetch(unit_.keys_.slot(entry));
        entries_[query * kWidth + counts_[query]++] = static_cast<int32_t>(entry);
        if (counts_[query] == kWidth) score(query);
      }
      return number;
    }
    void finish() {
      for (int64_t n = 0; n < unit_.count_; ++n) {
        if (counts_[n] > 0) score(n);
      }
    }

   private:
    static constexpr int64_t kWidth = kLanes<T>;

    // Computes the same sums as a tile.
    __attribute__((noinline)) void score(int64_t query) {
      int32_t* const entries = entries_ + query * kWidth;
      const int64_t count = std::exchange(counts_[query], 0);
      int64_t slots[kWidth];
      for (int64_t j = 0; j < kWidth; ++j) slots[j] = unit_.keys_.slot(entries[std::min(j, count - 1)]);
      const Vector<T> sums = unit_.keys_.products(unit_.queries_ + query * unit_.s_.size, slots);
      T scores[kWidth];
      store_vector(scores, sums);
      const T before = best_.limit(query);
      best_.offer(query, scores, entries, count);
      if (best_.limit(query) != before) filter_.set_limit(query, best_.limit(query));
    }

    const Unit& unit_;
    BestOfMany<T>& best_;
    KnnFilter& filter_;
    int32_t* entries_;
    int32_t* counts_;
  };
#endif

  int64_t line(int64_t n) const {
    const int64_t query = first_ + n;
    return (row_ * s_.queries + query / s_.group()) * s_.heads + kv_head_ * s_.group() + query % s_.group();
  }

  // Calls body(first entry, count) for all keys, the oldest first.
  template <typename Body>
  void for_blocks(Body&& body) const {
    const int64_t max_length = panels_ * kPanel<T>;
    for (int64_t begin = 0; begin < keys_.length(); begin += max_length)
      body(begin, std::min(max_length, keys_.length() - begin));
  }

  template <typename Best>
  void search_block(Best& best, int64_t begin, int64_t block) const {
    pack_keys(packed_, keys_, begin, block);
    for_row_tiles(count_, [&](int64_t query, int64_t rows) {
      alignas(kVectorBytes) T tile[kTileRows * kPanel<T>];
      const auto product = tile_product_for<T>(rows, false, false);
      const T* panel = packed_;
      for (int64_t j = 0; j < block; j += kPanel<T>) {
        product(s_.size, queries_ + query * s_.size, s_.size, panel, kPanel<T>, tile, kPanel<T>, kPanel<T>, false);
        const int64_t columns = std::min<int64_t>(kPanel<T>, block - j);
        for (int64_t r = 0; r < rows; ++r) best.offer(query + r, tile + r * kPanel<T>, begin + j, columns);
        panel += panel_size_;
      }
    });
  }

  StoredVectors<T, S> keys_;
  const KnnSizes& s_;
  int64_t row_, kv_head_, first_, count_;
  T* queries_;
  int64_t panel_size_, panels_;
  T* packed_;
};

void knn_search(const Tensor& index, const Tensor& score, const Tensor& q, const ops::KnnMemory& memory,
                ops::KnnSearch search) {
  const KnnSizes s(q, index, memory);
  check_knn_search(s, index, score, q, memory);
  if (s.top_k == 0) return;
  const int64_t queries = s.queries * s.group();
  const int64_t heads = s.rows * s.kv_heads;
  const int64_t needed = int64_t{ThreadPool::current().threads()} * kUnitsOfThread;
  const int64_t of_unit = std::clamp(ceil_div(heads * queries, needed), kFewestQueries, kQueries);
  const int64_t units = ceil_div(queries, of_unit);
  dispatch("knn_search", q.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_stored<T>("knn_search", memory.keys.dtype(), [&](auto stored) {
      using S = decltype(stored);
      parallel_for(heads * units, [&](int64_t unit) {
        const int64_t head = unit / units;
        const int64_t first = queries * (unit % units) / units;
        const int64_t count = queries * (unit % units + 1) / units - first;
        const Unit<T, S> work(q, memory, s, head / s.kv_heads, head % s.kv_heads, first, count);
        if (search == ops::KnnSearch::bucketed) {
          BestOfBuckets<T> best(1, count, s.top_k);
          work.search_all(best);
          work.write(best, index, score);
          return;
        }
        BestOfMany<T> best(1, count, s.top_k);
        if constexpr (std::is_same_v<T, float> && kFilterBuilt) {
          if (can_filter()) {
            work.search_filtered(best);
            work.write(best, index, score);
            return;
          }
        }
        work.search_all(best);
        work.write(best, index, score);
      });
    });
  });
}

}  // namespace

void bind_knn_search() {
  ops::knn_search.bind(DeviceKind::cpu, knn_search);
}

}  // namespace quire::cpu
