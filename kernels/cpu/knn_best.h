// The best K of a stream of scores that arrive in order of age.
#pragma once

#include <numeric>

#include "kernels/cpu/product.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace quire::cpu {

// A bit for each lane with !(x <= limit): larger, or one of the two is no number.
inline uint32_t lanes_above(Vector<float> x, float limit) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_NLE_UQ);
#else
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps((__m256)x, _mm256_set1_ps(limit), _CMP_NLE_UQ)));
#endif
}
inline uint32_t lanes_above(Vector<double> x, double limit) {
#if defined(__AVX512F__)
  return _mm512_cmp_pd_mask((__m512d)x, _mm512_set1_pd(limit), _CMP_NLE_UQ);
#else
  return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd((__m256d)x, _mm256_set1_pd(limit), _CMP_NLE_UQ)));
#endif
}

// Integers in the order of the numbers: zeros are equal, NaN is the least of all.
template <typename T>
auto rank_of(T x) {
  using Rank = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  constexpr Rank kLargest = std::numeric_limits<Rank>::max();
  const auto bits = std::bit_cast<Rank>(x + T{0});
  const Rank order = bits < 0 ? bits ^ kLargest : bits;
  return x == x ? order : std::numeric_limits<Rank>::min();
}

// Of many queries. Scores that may be among a query's best are pushed; when its buffer is full, all but the best are
// dropped and the worst of those becomes the limit that later scores have to exceed. So ties go to the older one.
template <typename T>
class BestOfMany {
 public:
  using Rank = decltype(rank_of(T{}));

  // wanted: at least 1. Uses four slots of scratch from `slot` on, and those of another type.
  BestOfMany(int slot, int64_t queries, int64_t wanted)
      : wanted_(wanted),
        room_(ceil_div(2 * wanted + 64, int64_t{kPanel<T>}) * kPanel<T>),
        limits_(scratch<T>(slot, queries)),
        scores_(scratch<T>(slot + 1, queries * (room_ + kPanel<T>))),
        counts_(scratch<int32_t>(slot, queries)),
        entries_(scratch<int32_t>(slot + 1, queries * (room_ + kPanel<T>))),
        ranks_(scratch<Rank>(slot + 2, room_ + kPanel<T>)) {
    std::fill(limits_, limits_ + queries, std::numeric_limits<T>::quiet_NaN());  // everything is above
    std::fill(counts_, counts_ + queries, 0);
  }

  // Scores of the entries [first, first + count), count at most a panel; a whole panel can be read.
  void offer(int64_t query, const T* scores, int64_t first, int64_t count) {
    uint32_t hits = 0;
    for (int v = 0; v < kTileVectors; ++v) {
      hits |= lanes_above(load_vector(scores + v * kLanes<T>), limits_[query]) << (v * kLanes<T>);
    }
    if (count < kPanel<T>) hits &= (uint32_t{1} << count) - 1;
    if (hits != 0) push(query, scores, first, hits);
  }

  // Writes the best in descending order, with -1 and 0 where there are fewer.
  void finish(int64_t query, int32_t* entries, T* scores) {
    if (counts_[query] > wanted_) keep_best(query);
    const int64_t count = counts_[query];
    const T* const from = scores_of(query);
    const int32_t* const found = entries_of(query);
    for (int64_t i = 0; i < count; ++i) ranks_[i] = rank_of(from[i]);
    constexpr int64_t kFew = 128;
    if (count <= kFew) {
      // The place of each is the number of those before it.
      for (int64_t i = 0; i < count; ++i) {
        const Rank own = ranks_[i];
        int32_t place = 0;
        for (int64_t j = 0; j < count; ++j) place += ranks_[j] > own ? 1 : 0;
        for (int64_t j = 0; j < i; ++j) place += ranks_[j] == own ? 1 : 0;
        entries[place] = found[i];
        scores[place] = from[i];
      }
    } else {
      int32_t* const order = scratch<int32_t>(15, count);
      std::iota(order, order + count, 0);
      std::sort(order, order + count,
                [&](int32_t i, int32_t j) { return ranks_[i] != ranks_[j] ? ranks_[i] > ranks_[j] : i < j; });
      for (int64_t i = 0; i < count; ++i) {
        entries[i] = found[order[i]];
        scores[i] = from[order[i]];
      }
    }
    std::fill(entries + count, entries + wanted_, -1);
    std::fill(scores + count, scores + wanted_, T{0});
  }

 private:
  T* scores_of(int64_t query) const { return scores_ + query * (room_ + kPanel<T>); }
  int32_t* entries_of(int64_t query) const { return entries_ + query * (room_ + kPanel<T>); }

  void push(int64_t query, const T* scores, int64_t first, uint32_t hits) {
    int32_t count = counts_[query];
    T* const to = scores_of(query);
    int32_t* const entries = entries_of(query);
    for (; hits != 0; hits &= hits - 1) {
      const int j = std::countr_zero(hits);
      to[count] = scores[j];
      entries[count] = static_cast<int32_t>(first + j);
      ++count;
    }
    counts_[query] = count;
    if (count > room_) keep_best(query);
  }

  // Keeps the best in order of age.
  void keep_best(int64_t query) {
    const int32_t count = counts_[query];
    T* const scores = scores_of(query);
    int32_t* const entries = entries_of(query);
    Rank low = std::numeric_limits<Rank>::max();
    Rank high = std::numeric_limits<Rank>::min();
    for (int32_t i = 0; i < count; ++i) {
      ranks_[i] = rank_of(scores[i]);
      low = std::min(low, ranks_[i]);
      high = std::max(high, ranks_[i]);
    }
    // The largest rank that at least `wanted` reach, or one that exactly as many do.
    int64_t equal = wanted_;  // how many of those at `low` stay
    while (low < high) {
      using Unsigned = std::make_unsigned_t<Rank>;
      const auto half = (static_cast<Unsigned>(high) - static_cast<Unsigned>(low)) / 2 + 1;
      const auto middle = static_cast<Rank>(static_cast<Unsigned>(low) + half);
      int32_t reached = 0;
      for (int32_t i = 0; i < count; ++i) reached += ranks_[i] >= middle ? 1 : 0;
      if (reached == wanted_) {
        low = middle;
        break;
      }
      if (reached > wanted_) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    for (int32_t i = 0; i < count; ++i) equal -= ranks_[i] > low ? 1 : 0;
    int32_t kept = 0;
    Rank least = std::numeric_limits<Rank>::max();
    T limit = 0;
    for (int32_t i = 0; i < count; ++i) {
      const bool tied = ranks_[i] == low;
      const bool stays = ranks_[i] > low || (tied && equal > 0);
      equal -= tied ? 1 : 0;
      if (stays && ranks_[i] <= least) {
        least = ranks_[i];
        limit = scores[i];
      }
      scores[kept] = scores[i];
      entries[kept] = entries[i];
      kept += stays ? 1 : 0;
    }
    counts_[query] = kept;
    limits_[query] = limit;
  }

  int64_t wanted_, room_;
  T* limits_;
  T* scores_;
  int32_t* counts_;
  int32_t* entries_;
  Rank* ranks_;
};

}  // namespace quire::cpu
