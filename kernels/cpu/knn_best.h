// Finds the best K of a stream of scores that arrive in order of age.
#pragma once

#include <numeric>

#include "kernels/cpu/knn_memory.h"

namespace quire::cpu {

// Returns a bit for each lane with !(x <= limit): x is larger, or one of the two is NaN.
inline uint32_t lanes_above(Vector<float> x, float limit) {
#if defined(__AVX512F__)
  return bits_of_mask(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_NLE_UQ));
#else
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps((__m256)x, _mm256_set1_ps(limit), _CMP_NLE_UQ)));
#endif
}
inline uint32_t lanes_above(Vector<double> x, double limit) {
#if defined(__AVX512F__)
  return bits_of_mask(_mm512_cmp_pd_mask((__m512d)x, _mm512_set1_pd(limit), _CMP_NLE_UQ));
#else
  return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd((__m256d)x, _mm256_set1_pd(limit), _CMP_NLE_UQ)));
#endif
}

// Returns a bit for each lane with x > limit, for integers of one size.
template <typename T, typename Lanes, typename Rank>
uint32_t ranks_above(Lanes x, Rank limit) {
#if defined(__AVX512F__)
  if constexpr (sizeof(Rank) == 4) return bits_of_mask(_mm512_cmpgt_epi32_mask((__m512i)x, _mm512_set1_epi32(limit)));
  if constexpr (sizeof(Rank) == 8) return bits_of_mask(_mm512_cmpgt_epi64_mask((__m512i)x, _mm512_set1_epi64(limit)));
#else
  const auto above = x > limit - Lanes{};
  if constexpr (sizeof(Rank) == 4) return static_cast<uint32_t>(_mm256_movemask_ps((__m256)above));
  return static_cast<uint32_t>(_mm256_movemask_pd((__m256d)above));
#endif
}

// Writes the lanes whose bits are set next to each other; a whole vector is written.
inline void store_lanes(float* to, const float* from, uint32_t bits) {
#if defined(__AVX512F__)
  _mm512_storeu_ps(to, _mm512_maskz_compress_ps(static_cast<__mmask16>(bits), _mm512_loadu_ps(from)));
#else
  for (; bits != 0; bits &= bits - 1) *to++ = from[std::countr_zero(bits)];
#endif
}
inline void store_lanes(double* to, const double* from, uint32_t bits) {
  for (; bits != 0; bits &= bits - 1) *to++ = from[std::countr_zero(bits)];
}
template <int Lanes>
void store_lanes(int32_t* to, const int32_t* from, uint32_t bits) {
#if defined(__AVX512F__)
  if constexpr (Lanes == 16) {
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(static_cast<__mmask16>(bits), _mm512_loadu_si512(from)));
    return;
  }
#endif
  for (; bits != 0; bits &= bits - 1) *to++ = from[std::countr_zero(bits)];
}

// Returns an integer with the order of the number: zeros are equal, NaN is the smallest of all.
template <typename T>
auto rank_of(T x) {
  using Rank = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  constexpr Rank kLargest = std::numeric_limits<Rank>::max();
  const auto bits = std::bit_cast<Rank>(x + T{0});
  const Rank order = bits < 0 ? bits ^ kLargest : bits;
  return x == x ? order : std::numeric_limits<Rank>::min();
}

template <typename T, typename Ranks>
Ranks ranks_of(Vector<T> x) {
  using Rank = decltype(rank_of(T{}));
  const Ranks bits = (Ranks)(x + Vector<T>{});
  const Ranks order = bits < 0 ? bits ^ std::numeric_limits<Rank>::max() : bits;
  return x == x ? order : Ranks{} + std::numeric_limits<Rank>::min();
}

// Returns the number of a rank.
template <typename T, typename Rank>
T with_rank(Rank order) {
  if (order == std::numeric_limits<Rank>::min()) return std::numeric_limits<T>::quiet_NaN();
  return std::bit_cast<T>(order < 0 ? order ^ std::numeric_limits<Rank>::max() : order);
}

// Keeps the best scores of many queries. Scores that may be among a query's best are pushed; when its buffer is full,
// all but the best are dropped and the worst of those becomes the limit that later scores must exceed. Ties therefore
// go to the older entry.
template <typename T>
class BestOfMany {
 public:
  using Rank = decltype(rank_of(T{}));

  // `top_k` (K) is at least 1. Uses four slots of scratch from `slot` on, and those of another type.
  BestOfMany(int slot, int64_t queries, int64_t top_k)
      : top_k_(top_k),
        room_(ceil_div(top_k + kSpare, int64_t{kPanel<T>}) * kPanel<T>),
        limits_(scratch<T>(slot, queries)),
        scores_(scratch<T>(slot + 1, queries * (room_ + kPanel<T>))),
        counts_(scratch<int32_t>(slot, queries)),
        entries_(scratch<int32_t>(slot + 1, queries * (room_ + kPanel<T>))),
        ranks_(scratch<Rank>(slot + 2, room_ + kPanel<T>)) {
    std::fill(limits_, limits_ + queries, std::numeric_limits<T>::quiet_NaN());  // NaN: every score passes
    std::fill(counts_, counts_ + queries, 0);
  }

  // Offers the scores of entries [first, first + count), at most a panel; a whole panel must be readable.
  void offer(int64_t query, const T* scores, int64_t first, int64_t count) {
    uint32_t hits = 0;
    for (int v = 0; v < kTileVectors; ++v) {
      hits |= lanes_above(load_vector(scores + v * kLanes<T>), limits_[query]) << (v * kLanes<T>);
    }
    if (count < kPanel<T>) hits &= (uint32_t{1} << count) - 1;
    if (hits != 0) push(query, scores, hits, [first](int j) { return static_cast<int32_t>(first + j); });
  }
  // Offers the scores of `count` entries in order of age, at most a vector; a whole vector must be readable.
  void offer(int64_t query, const T* scores, const int32_t* entries, int64_t count) {
    const uint32_t hits =
        lanes_above(load_vector(scores), limits_[query]) & static_cast<uint32_t>((uint64_t{1} << count) - 1);
    if (hits != 0) push(query, scores, hits, [entries](int j) { return entries[j]; });
  }
  // Returns the limit that a score must exceed; NaN: none yet.
  T limit(int64_t query) const { return limits_[query]; }
  const T* limits() const { return limits_; }
  // Raises the limits of queries that have at least 2 K scores.
  void tighten(int64_t queries) {
    for (int64_t n = 0; n < queries; ++n) {
      if (counts_[n] >= 2 * top_k_) keep_best(n);
    }
  }

  // Writes the best scores in descending order, with -1 and 0 where there are fewer than K.
  void finish(int64_t query, int32_t* entries, T* scores) {
    if (counts_[query] > top_k_) keep_best(query);
    const int64_t count = counts_[query];
    const T* const from = scores_of(query);
    const int32_t* const found = entries_of(query);
    for (int64_t i = 0; i < count; i += kLanes<T>) {
      using Ranks = typename LanesOf<Rank, kLanes<T>>::type;
      const Ranks ranks = ranks_of<T, Ranks>(load_vector(from + i));
      std::memcpy(ranks_ + i, &ranks, sizeof(ranks));
    }
    constexpr int64_t kFew = 128;
    if (count <= kFew) {
      // The position of an entry is the number of entries that rank before it.
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
    std::fill(entries + count, entries + top_k_, -1);
    std::fill(scores + count, scores + top_k_, T{0});
  }

 private:
  T* scores_of(int64_t query) const { return scores_ + query * (room_ + kPanel<T>); }
  int32_t* entries_of(int64_t query) const { return entries_ + query * (room_ + kPanel<T>); }

  template <typename EntryOf>
  void push(int64_t query, const T* scores, uint32_t hits, EntryOf&& entry_of) {
    int32_t count = counts_[query];
    T* const to = scores_of(query);
    int32_t* const entries = entries_of(query);
    for (; hits != 0; hits &= hits - 1) {
      const int j = std::countr_zero(hits);
      to[count] = scores[j];
      entries[count] = entry_of(j);
      ++count;
    }
    counts_[query] = count;
    if (count > room_) keep_best(query);
  }

  // Keeps the best, in order of age.
  __attribute__((noinline)) void keep_best(int64_t query) {
    const int32_t count = counts_[query];
    T* const scores = scores_of(query);
    int32_t* const entries = entries_of(query);
    using Ranks = typename LanesOf<Rank, kLanes<T>>::type;
    Rank low = std::numeric_limits<Rank>::max();
    Rank high = std::numeric_limits<Rank>::min();
    for (int32_t i = 0; i < count; i += kLanes<T>) {
      const Ranks ranks = ranks_of<T, Ranks>(load_vector(scores + i));
      std::memcpy(ranks_ + i, &ranks, sizeof(ranks));
    }
    for (int32_t i = 0; i < count; ++i) {
      low = std::min(low, ranks_[i]);
      high = std::max(high, ranks_[i]);
    }
    // Searches the largest rank that at least K entries reach, or one that exactly K reach.
    int64_t equal = top_k_;  // how many of those at `low` remain
    using Unsigned = std::make_unsigned_t<Rank>;
    int32_t at_low = count;
    int32_t at_high = 1;
    for (bool halve = false; low < high; halve = !halve) {
      // Interpolation and bisection alternate.
      const auto width = static_cast<Unsigned>(high) - static_cast<Unsigned>(low);
      auto part = width / 2;
      if (!halve) {
        part = static_cast<Unsigned>(static_cast<double>(width) * static_cast<double>(at_low - top_k_) /
                                     static_cast<double>(at_low - at_high + 1));
      }
      const auto middle = static_cast<Rank>(static_cast<Unsigned>(low) + std::min(part, width - 1) + 1);
      int32_t reached = 0;
      for (int32_t i = 0; i < count; ++i) reached += ranks_[i] >= middle ? 1 : 0;
      if (reached == top_k_) {
        low = middle;
        break;
      }
      if (reached > top_k_) {
        low = middle;
        at_low = reached;
      } else {
        high = middle - 1;
        at_high = reached;
      }
    }
    for (int32_t i = 0; i < count; ++i) equal -= ranks_[i] > low ? 1 : 0;
    int32_t kept = 0;
    Rank min_rank = std::numeric_limits<Rank>::max();
    for (int32_t i = 0; i < count; i += kLanes<T>) {
      Ranks ranks;
      std::memcpy(&ranks, ranks_ + i, sizeof(ranks));
      uint32_t stay = ranks_above<T>(ranks, low);
      if (equal > 0) {
        for (int j = 0; j < kLanes<T>; ++j) {
          if (equal == 0 || ranks_[i + j] != low || i + j >= count) continue;
          stay |= uint32_t{1} << j;
          --equal;
          min_rank = low;
        }
      }
      if (count - i < kLanes<T>) stay &= (uint32_t{1} << (count - i)) - 1;
      store_lanes(scores + kept, scores + i, stay);
      store_lanes<kLanes<T>>(entries + kept, entries + i, stay);
      kept += std::popcount(stay);
    }
    if (min_rank != low) {
      for (int32_t i = 0; i < count; ++i) min_rank = std::min(min_rank, ranks_[i] > low ? ranks_[i] : min_rank);
    }
    counts_[query] = kept;
    limits_[query] = with_rank<T>(min_rank);
  }

  static constexpr int64_t kSpare = 64;
  int64_t top_k_, room_;
  T* limits_;
  T* scores_;
  int32_t* counts_;
  int32_t* entries_;
  Rank* ranks_;
};

}  // namespace quire::cpu
