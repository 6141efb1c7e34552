// Sorts tokens by codeword; computes counts and mean values by codeword before every block, and their gradient.
#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/cpu/product.h"
#include "kernels/vq_sizes.h"

namespace quire::cpu {

namespace {

// The codewords of a row and head are divided among this many tasks.
constexpr int64_t kCodeParts = 4;

// The means that code_caches returns: those of the caches that blocks read, and of the last one.
struct CacheMeans {
  const Tensor &read, &last;
};

// The caches of one row.
struct RowOfCaches {
  const int32_t *origin, *limit;
  int64_t ring_head;

  RowOfCaches(const ops::CodedTokens& in, const CodedTokenSizes& s, int64_t row)
      : origin(in.origin.data<int32_t>() + row * s.caches),
        limit(in.limit.data<int32_t>() + row * s.caches),
        ring_head(s.slots > 0 ? in.window_head.data<int32_t>()[row] : 0) {}

  // Return whether cache b begins anew, and if so, whether it begins with the carried cache.
  bool begins(int64_t b) const { return b == 0 || origin[b] != origin[b - 1]; }
  bool carried(int64_t b) const { return origin[b] <= 0; }
  int64_t slot(int64_t position, const CodedTokenSizes& s) const { return (ring_head + position + s.slots) % s.slots; }
};

// A row and head of sort_by_code.
class HeadOfRow {
 public:
  HeadOfRow(const ops::CodedTokens& in, const CodedTokenSizes& s, int64_t codes, int64_t tile)
      : in_(in), s_(s), codes_(codes), row_(tile / s.kv_heads), head_(tile % s.kv_heads), caches_(in, s, row_) {}

  // Calls visit(position, code) for the tokens that have a code.
  template <typename Visit>
  void for_each_token(Visit&& visit) const {
    for (int64_t position = -s_.slots; position < s_.tokens; ++position) {
      const int64_t found =
          position >= 0
              ? in_.codes.data<int32_t>()[(row_ * s_.tokens + position) * s_.kv_heads + head_]
              : in_.window_codes.data<int32_t>()[(row_ * s_.slots + caches_.slot(position, s_)) * s_.kv_heads + head_];
      QUIRE_CHECK(found < codes_, "sort_by_code: code {} of {}", found, codes_);
      if (found >= 0) visit(position, found);
    }
  }

  // `ranges` are those of this head and the first cache; first, last: the codeword's tokens.
  void find_ranges(int32_t* ranges, const int32_t* positions, int64_t code, int64_t first, int64_t last) const {
    const auto from = [&](int64_t begin, int64_t position) {
      return std::lower_bound(positions + begin, positions + last, position + s_.slots) - positions;
    };
    int64_t end = first;
    for (int64_t b = 0; b < s_.caches; ++b) {
      const bool goes_on = !caches_.begins(b) && caches_.limit[b - 1] > caches_.origin[b];
      const int64_t begin = goes_on ? end : from(first, caches_.origin[b]);
      end = from(begin, caches_.limit[b]);
      int32_t* const range = ranges + 2 * (b * s_.kv_heads * codes_ + code);
      range[0] = static_cast<int32_t>(begin);
      range[1] = static_cast<int32_t>(end);
    }
  }

  void check() const {
    for (int64_t b = 0; b < s_.caches; ++b) {
      const int64_t first = caches_.begins(b) ? caches_.origin[b] : std::max(caches_.origin[b], caches_.limit[b - 1]);
      const int64_t last = caches_.limit[b];
      QUIRE_CHECK(first >= last || (first >= -s_.slots && last <= s_.tokens),
                  "sort_by_code: tokens [{}, {}) of {} with a window of {}", first, last, s_.tokens, s_.slots);
    }
  }

 private:
  const ops::CodedTokens& in_;
  const CodedTokenSizes& s_;
  int64_t codes_, row_, head_;
  RowOfCaches caches_;
};

void sort_by_code(const ops::TokensByCode& to, const ops::CodedTokens& in) {
  const CodedTokenSizes s(in);
  const int64_t codes = to.ranges.dim(3);
  check_tokens_by_code(s, codes, to);
  const int64_t heads = s.rows * s.kv_heads;
  int32_t* const positions = to.positions.data<int32_t>();
  // Counts the tokens of each codeword, then holds where the first of them goes, then where the next one goes.
  std::vector<int64_t> places(static_cast<size_t>(heads * codes), 0);
  parallel_for(heads, [&](int64_t tile) {
    const HeadOfRow head(in, s, codes, tile);
    head.check();
    head.for_each_token([&](int64_t, int64_t code) { ++places[static_cast<size_t>(tile * codes + code)]; });
  });
  std::exclusive_scan(places.begin(), places.end(), places.begin(), int64_t{0});
  parallel_for(heads, [&](int64_t tile) {
    const HeadOfRow head(in, s, codes, tile);
    int64_t* const place = places.data() + tile * codes;
    int64_t first = codes > 0 ? place[0] : 0;
    head.for_each_token(
        [&](int64_t position, int64_t code) { positions[place[code]++] = static_cast<int32_t>(position + s.slots); });
    int32_t* const ranges =
        to.ranges.data<int32_t>() + 2 * (tile / s.kv_heads * s.caches * s.kv_heads + tile % s.kv_heads) * codes;
    for (int64_t code = 0; code < codes; ++code) {
      head.find_ranges(ranges, positions, code, first, place[code]);
      first = place[code];
    }
  });
}

// A task: codewords [begin, end) of one row and head, and the tokens that each cache adds to the one before it.
template <typename T>
class CodePart {
 public:
  CodePart(const ops::CodeCacheInputs& in, const ops::TokensByCode& by_code, const CodeCacheSizes& s, int64_t tile)
      : in_(in),
        by_code_(by_code),
        s_(s),
        row_(tile / (s.kv_heads * kCodeParts)),
        head_(tile / kCodeParts % s.kv_heads),
        begin_(s.codes * (tile % kCodeParts) / kCodeParts),
        end_(s.codes * (tile % kCodeParts + 1) / kCodeParts),
        caches_(in.tokens, s, row_) {}

  int64_t codes() const { return end_ - begin_; }
  bool begins(int64_t b) const { return caches_.begins(b); }
  bool carried(int64_t b) const { return caches_.carried(b); }

  // Returns position + C of the tokens with code c that cache b adds.
  std::span<const int32_t> tokens(int64_t b, int64_t c) const {
    const int32_t* const range = by_code_.ranges.data<int32_t>() + 2 * at(b, c);
    return {by_code_.positions.data<int32_t>() + range[0], static_cast<size_t>(range[1] - range[0])};
  }
  const T* value(int32_t listed) const {
    const int64_t position = listed - s_.slots;
    if (position >= 0) return in_.v.template data<T>() + token(position) * s_.value_size;
    const int64_t line = (row_ * s_.slots + caches_.slot(position, s_)) * s_.kv_heads + head_;
    return in_.window_v.template data<T>() + line * s_.value_size;
  }
  // Returns nullptr for a token of the window.
  T* gradient(const Tensor& dv, int32_t listed) const {
    const int64_t position = listed - s_.slots;
    return position >= 0 ? dv.data<T>() + token(position) * s_.value_size : nullptr;
  }

  const T* carried_mean(int64_t c) const { return in_.mean.template data<T>() + carried_at(c) * s_.value_size; }
  T carried_count(int64_t c) const { return in_.count.template data<T>()[carried_at(c)]; }
  // Returns the mean in a cache that blocks read.
  T* mean(const Tensor& means, int64_t b, int64_t c) const {
    const int64_t line = ((row_ * (s_.caches - 1) + b) * s_.kv_heads + head_) * s_.codes + begin_ + c;
    return means.data<T>() + line * s_.value_size;
  }
  // Returns the mean in any cache.
  T* mean(const CacheMeans& all, int64_t b, int64_t c) const {
    return b + 1 < s_.caches ? mean(all.read, b, c) : all.last.data<T>() + carried_at(c) * s_.value_size;
  }
  T& count(const Tensor& counts, int64_t b, int64_t c) const { return counts.data<T>()[at(b, c)]; }

 private:
  int64_t token(int64_t position) const { return (row_ * s_.tokens + position) * s_.kv_heads + head_; }
  int64_t carried_at(int64_t c) const { return (row_ * s_.kv_heads + head_) * s_.codes + begin_ + c; }
  int64_t at(int64_t b, int64_t c) const {
    return ((row_ * s_.caches + b) * s_.kv_heads + head_) * s_.codes + begin_ + c;
  }

  const ops::CodeCacheInputs& in_;
  const ops::TokensByCode& by_code_;
  const CodeCacheSizes& s_;
  int64_t row_, head_, begin_, end_;
  RowOfCaches caches_;
};

template <typename T>
using Values = ArrayView<T>;
template <typename T>
using ConstValues = ConstArrayView<T>;

// Merges mean `from` of n tokens with mean `other` of m tokens into `to` and `count`; weights are applied before
// adding, so that nothing overflows.
template <typename T>
void merge(T* to, T& count, const T* from, T n, const T* other, T m, int64_t size) {
  if (m == T{0}) {
    if (to != from) std::copy(from, from + size, to);
    count = n;
    return;
  }
  count = n + m;
  const T keep = n / count;
  const T take = m / count;
  for (int64_t i = 0; i < size; ++i) to[i] = keep * from[i] + take * other[i];
}

// Computes the mean of the tokens with code c that cache b adds; returns their number.
template <typename T>
T mean_of_added(T* mean, const CodePart<T>& part, int64_t b, int64_t c, int64_t size) {
  const std::span<const int32_t> tokens = part.tokens(b, c);
  std::fill(mean, mean + size, T{0});
  if (tokens.empty()) return 0;
  for (const int32_t p : tokens) Values<T>(mean, size) += ConstValues<T>(part.value(p), size);
  Values<T>(mean, size) /= static_cast<T>(tokens.size());
  return static_cast<T>(tokens.size());
}

template <typename T>
void serial(const CacheMeans& means, const Tensor& counts, const CodePart<T>& part, const CodeCacheSizes& s) {
  T* const mean = scratch<T>(0, s.value_size);
  T* const zeros = scratch<T>(1, s.value_size);
  std::fill(zeros, zeros + s.value_size, T{0});
  for (int64_t b = 0; b < s.caches; ++b) {
    for (int64_t c = 0; c < part.codes(); ++c) {
      const T* from = zeros;
      T n = 0;
      if (!part.begins(b)) {
        from = part.mean(means, b - 1, c);
        n = part.count(counts, b - 1, c);
      } else if (part.carried(b)) {
        from = part.carried_mean(c);
        n = part.carried_count(c);
      }
      T* const to = part.mean(means, b, c);
      const T m = part.tokens(b, c).empty() ? T{0} : mean_of_added(mean, part, b, c, s.value_size);
      merge(to, part.count(counts, b, c), from, n, mean, m, s.value_size);
      if (part.count(counts, b, c) == T{0}) std::fill(to, to + s.value_size, T{0});
    }
  }
}

// Uses one product per code: caches are weighted means of the carried cache and of the additions of each cache.
template <typename T>
void by_product(const CacheMeans& means, const Tensor& counts, const CodePart<T>& part, const CodeCacheSizes& s) {
  const int64_t entries = s.caches + 1;
  T* const values = scratch<T>(0, entries * s.value_size);
  T* const numbers = scratch<T>(1, entries);
  T* const weights = scratch<T>(2, s.caches * entries);
  T* const products = scratch<T>(3, s.caches * s.value_size);
  for (int64_t c = 0; c < part.codes(); ++c) {
    numbers[0] = part.carried_count(c);
    std::copy_n(part.carried_mean(c), s.value_size, values);
    for (int64_t b = 0; b < s.caches; ++b) {
      numbers[b + 1] = mean_of_added(values + (b + 1) * s.value_size, part, b, c, s.value_size);
    }
    std::fill(weights, weights + s.caches * entries, T{0});
    int64_t begin = 0;
    for (int64_t b = 0; b < s.caches; ++b) {
      if (part.begins(b)) begin = b;
      T total = part.carried(b) ? numbers[0] : T{0};
      for (int64_t g = begin; g <= b; ++g) total += numbers[g + 1];
      part.count(counts, b, c) = total;
      if (total == T{0}) continue;
      T* const line = weights + b * entries;
      if (part.carried(b)) line[0] = numbers[0] / total;
      for (int64_t g = begin; g <= b; ++g) line[g + 1] = numbers[g + 1] / total;
    }
    block_product(products, s.value_size, Operand<T>{weights, entries}, values, s.value_size, s.caches, s.value_size,
                  entries, false);
    for (int64_t b = 0; b < s.caches; ++b) {
      std::copy_n(products + b * s.value_size, s.value_size, part.mean(means, b, c));
    }
  }
}

// Recursive doubling: in each pass every cache adds the cache that lies `step` before it.
template <typename T>
void scan(const CacheMeans& means, const Tensor& counts, const CodePart<T>& part, const CodeCacheSizes& s) {
  T* const mean = scratch<T>(0, s.value_size);
  std::vector<int64_t> begin(static_cast<size_t>(s.caches));
  for (int64_t b = 0; b < s.caches; ++b) {
    begin[static_cast<size_t>(b)] = part.begins(b) ? b : begin[static_cast<size_t>(b - 1)];
  }
  for (int64_t c = 0; c < part.codes(); ++c) {
    for (int64_t b = 0; b < s.caches; ++b) {
      T* const to = part.mean(means, b, c);
      T& count = part.count(counts, b, c);
      count = mean_of_added(to, part, b, c, s.value_size);
      if (!part.begins(b) || !part.carried(b)) continue;
      std::copy_n(to, s.value_size, mean);
      merge(to, count, part.carried_mean(c), part.carried_count(c), mean, count, s.value_size);
      if (count == T{0}) std::fill(to, to + s.value_size, T{0});
    }
    for (int64_t step = 1; step < s.caches; step *= 2) {
      for (int64_t b = s.caches - 1; b - step >= 0; --b) {
        if (b - step < begin[static_cast<size_t>(b)]) continue;
        T* const to = part.mean(means, b, c);
        T& count = part.count(counts, b, c);
        const T n = part.count(counts, b - step, c);
        const T* const from = part.mean(means, b - step, c);
        if (n == T{0}) continue;
        if (count == T{0}) {
          std::copy_n(from, s.value_size, to);
          count = n;
        } else {
          merge(to, count, from, n, to, count, s.value_size);
        }
      }
    }
  }
}

void code_caches(const Tensor& read, const Tensor& last, const Tensor& counts, const ops::CodeCacheInputs& in,
                 const ops::TokensByCode& by_code) {
  const CodeCacheSizes s(in);
  check_code_caches(s, read, last, counts, in, by_code);
  const CacheMeans means{read, last};
  dispatch("code_caches", in.v.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(s.rows * s.kv_heads * kCodeParts, [&](int64_t tile) {
      const CodePart<T> part(in, by_code, s, tile);
      switch (in.reduction) {
        case ops::CodeReduction::serial:
          return serial(means, counts, part, s);
        case ops::CodeReduction::matmul:
          return by_product(means, counts, part, s);
        case ops::CodeReduction::scan:
          return scan(means, counts, part, s);
      }
    });
  });
}

// A token is in its own cache and in the following ones up to the next new beginning, so sums run backwards.
void code_caches_backward(const Tensor& dv, const Tensor& dmeans, const Tensor& counts, const ops::CodeCacheInputs& in,
                          const ops::TokensByCode& by_code) {
  const CodeCacheSizes s(in);
  check_code_caches_backward(s, dv, dmeans, counts, in, by_code);
  dispatch("code_caches_backward", in.v.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(s.rows * s.kv_heads * kCodeParts, [&](int64_t tile) {
      const CodePart<T> part(in, by_code, s, tile);
      T* const later = scratch<T>(0, part.codes() * s.value_size);
      for (int64_t b = s.caches - 1; b >= 0; --b) {
        const bool last = b + 1 == s.caches || part.begins(b + 1);
        for (int64_t c = 0; c < part.codes(); ++c) {
          Values<T> sum(later + c * s.value_size, s.value_size);
          if (last) sum.setZero();
          const T n = part.count(counts, b, c);
          if (b + 1 < s.caches && n > T{0}) sum += ConstValues<T>(part.mean(dmeans, b, c), s.value_size) * (T{1} / n);
          for (const int32_t p : part.tokens(b, c)) {
            if (T* const to = part.gradient(dv, p)) Values<T>(to, s.value_size) += sum;
          }
        }
      }
    });
  });
}

}  // namespace

void bind_vq_caches() {
  ops::sort_by_code.bind(DeviceKind::cpu, sort_by_code);
  ops::code_caches.bind(DeviceKind::cpu, code_caches);
  ops::code_caches_backward.bind(DeviceKind::cpu, code_caches_backward);
}

}  // namespace quire::cpu
