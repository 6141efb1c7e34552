// Search of an external memory: blocks of keys, converted and transposed once for many queries, tiles of scores that
// stay in the first-level cache until they have been compared with the worst of each query's best.
#include "kernels/cpu/knn_best.h"
#include "kernels/cpu/knn_memory.h"

namespace quire::cpu {

namespace {

// Keys of a block, in the second-level cache while all queries go over them.
constexpr int64_t kKeyBytes = int64_t{128} << 10;
// Queries of one unit of work. Fewer where there would not be enough units for the threads of a machine: every unit
// reads, converts and transposes all keys of its head.
constexpr int64_t kQueries = 37 * int64_t{kTileRows};
constexpr int64_t kFewestQueries = 4 * int64_t{kTileRows};
constexpr int64_t kUnits = 16;

// The best entry of each of K buckets.
template <typename T>
class BestOfBuckets {
 public:
  BestOfBuckets(int slot, int64_t queries, int64_t wanted)
      : wanted_(wanted),
        scores_(scratch<T>(slot, queries * wanted)),
        entries_(scratch<int32_t>(slot, queries * wanted)) {
    std::fill(entries_, entries_ + queries * wanted, -1);
    std::fill(scores_, scores_ + queries * wanted, T{0});
  }

  void offer(int64_t query, const T* scores, int64_t first, int64_t count) {
    for (int64_t done = 0; done < count;) {
      const int64_t bucket = (first + done) % wanted_;
      const int64_t run = std::min(count - done, wanted_ - bucket);
      T* const best = scores_ + query * wanted_ + bucket;
      int32_t* const entries = entries_ + query * wanted_ + bucket;
      const auto entry = static_cast<int32_t>(first + done);
      for (int32_t j = 0; j < static_cast<int32_t>(run); ++j) {
        // Any number beats a NaN; the first entry of a bucket beats none at all.
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
    std::copy_n(entries_ + query * wanted_, wanted_, entries);
    std::copy_n(scores_ + query * wanted_, wanted_, scores);
  }

 private:
  int64_t wanted_;
  T* scores_;
  int32_t* entries_;
};

// Entries [first, first + count) in panels [width, kPanel] that lie kPanelGap apart; keys that are not there are zero.
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

// Queries [first, first + count) of a row and key head; they are counted heads of the group first.
template <typename Best, typename T, typename S>
void search_unit(const Tensor& index, const Tensor& score, const Tensor& q, const ops::KnnMemory& memory,
                 const KnnSizes& s, int64_t row, int64_t kv_head, int64_t first, int64_t count) {
  const StoredVectors<T, S> keys("knn_search", memory.keys, memory.key_scale, memory, row, kv_head);
  const auto line = [&](int64_t query) {
    return (row * s.queries + query / s.group()) * s.heads + kv_head * s.group() + query % s.group();
  };
  T* const queries = scratch<T>(0, count * s.size);
  for (int64_t n = 0; n < count; ++n) {
    std::copy_n(q.data<T>() + line(first + n) * s.size, s.size, queries + n * s.size);
  }
  Best best(1, count, s.wanted);
  const int64_t panel_size = kPanel<T> * s.size + kPanelGap<T>;
  const int64_t panels = std::clamp<int64_t>(kKeyBytes / (panel_size * static_cast<int64_t>(sizeof(T))), 1,
                                             std::max<int64_t>(1, ceil_div(keys.length(), int64_t{kPanel<T>})));
  T* const packed = scratch<T>(8, panels * panel_size);
  alignas(kVectorBytes) T tile[kTileRows * kPanel<T>];
  for (int64_t begin = 0; begin < keys.length(); begin += panels * kPanel<T>) {
    const int64_t block = std::min(panels * kPanel<T>, keys.length() - begin);
    pack_keys(packed, keys, begin, block);
    for_row_tiles(count, [&](int64_t query, int64_t rows) {
      const auto product = tile_product_for<T>(rows, false, false);
      const T* panel = packed;
      for (int64_t j = 0; j < block; j += kPanel<T>) {
        product(s.size, queries + query * s.size, s.size, panel, kPanel<T>, tile, kPanel<T>, kPanel<T>, false);
        const int64_t columns = std::min<int64_t>(kPanel<T>, block - j);
        for (int64_t r = 0; r < rows; ++r) best.offer(query + r, tile + r * kPanel<T>, begin + j, columns);
        panel += panel_size;
      }
    });
  }
  for (int64_t n = 0; n < count; ++n) {
    const int64_t at = line(first + n) * s.wanted;
    best.finish(n, index.data<int32_t>() + at, score.data<T>() + at);
  }
}

void knn_search(const Tensor& index, const Tensor& score, const Tensor& q, const ops::KnnMemory& memory,
                ops::KnnSearch search) {
  const KnnSizes s(q, index, memory);
  check_knn_search(s, index, score, q, memory);
  if (s.wanted == 0) return;
  const int64_t queries = s.queries * s.group();
  const int64_t heads = s.rows * s.kv_heads;
  const int64_t of_unit = std::clamp(ceil_div(heads * queries, kUnits), kFewestQueries, kQueries);
  const int64_t units = ceil_div(queries, of_unit);
  dispatch("knn_search", q.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_stored<T>("knn_search", memory.keys.dtype(), [&](auto stored) {
      using S = decltype(stored);
      parallel_for(heads * units, [&](int64_t unit) {
        const int64_t head = unit / units;
        const int64_t first = queries * (unit % units) / units;
        const int64_t count = queries * (unit % units + 1) / units - first;
        const auto run =
            search == ops::KnnSearch::exact ? search_unit<BestOfMany<T>, T, S> : search_unit<BestOfBuckets<T>, T, S>;
        run(index, score, q, memory, s, head / s.kv_heads, head % s.kv_heads, first, count);
      });
    });
  });
}

}  // namespace

void bind_knn_search() {
  ops::knn_search.bind(DeviceKind::cpu, knn_search);
}

}  // namespace quire::cpu
