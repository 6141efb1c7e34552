// Counts and mean values by codeword before every block, and their gradient.
#include "kernels/cpu/product.h"
#include "kernels/vq_sizes.h"

namespace quire::cpu {

namespace {

// Codewords of a row and head are dealt to as many tasks.
constexpr int64_t kCodeParts = 4;

// What code_caches returns: the caches that blocks read, and the last one.
struct CacheMeans {
  const Tensor &read, &last;
};

// A task: codewords [begin, end) of one row and head, and the tokens that each cache adds to the one before it.
template <typename T>
class CodePart {
 public:
  CodePart(const ops::CodeCacheInputs& in, const CodeCacheSizes& s, int64_t tile)
      : in_(in),
        s_(s),
        row_(tile / (s.kv_heads * kCodeParts)),
        head_(tile / kCodeParts % s.kv_heads),
        begin_(s.codes * (tile % kCodeParts) / kCodeParts),
        end_(s.codes * (tile % kCodeParts + 1) / kCodeParts),
        offsets_(static_cast<size_t>(s.caches * (codes() + 1) + 1)),
        ring_head_(s.slots > 0 ? in.window_head.data<int32_t>()[row_] : 0) {
    if (codes() == 0) return;
    // A stable sort by cache and code.
    const auto code_at = [&](int64_t position) {
      const int64_t found = *code(position);
      QUIRE_CHECK(found < s.codes, "code_caches: code {} of {}", found, s.codes);
      return found - begin_;
    };
    for (int64_t b = 0; b < s.caches; ++b) {
      int64_t* const ends = offsets_.data() + b * (codes() + 1);
      const auto [first, last] = added(b);
      const int64_t before = static_cast<int64_t>(positions_.size());
      std::fill(ends, ends + codes() + 1, 0);
      for (int64_t p = first; p < last; ++p) {
        const int64_t c = code_at(p);
        if (c >= 0 && c < codes()) ++ends[c + 1];
      }
      ends[0] = before;
      for (int64_t c = 0; c < codes(); ++c) ends[c + 1] += ends[c];
      positions_.resize(static_cast<size_t>(ends[codes()]));
      for (int64_t p = first; p < last; ++p) {
        const int64_t c = code_at(p);
        if (c >= 0 && c < codes()) positions_[static_cast<size_t>(ends[c]++)] = static_cast<int32_t>(p);
      }
      for (int64_t c = codes(); c > 0; --c) ends[c] = ends[c - 1];
      ends[0] = before;
    }
  }

  int64_t codes() const { return end_ - begin_; }
  // True when cache b begins anew, and then whether with what the row carried.
  bool begins(int64_t b) const { return b == 0 || origin()[b] != origin()[b - 1]; }
  bool carried(int64_t b) const { return origin()[b] <= 0; }

  // Positions of tokens with code c that cache b adds.
  std::span<const int32_t> tokens(int64_t b, int64_t c) const {
    const int64_t* const ends = offsets_.data() + b * (codes() + 1) + c;
    return {positions_.data() + ends[0], static_cast<size_t>(ends[1] - ends[0])};
  }
  const T* value(int64_t position) const {
    if (position >= 0) return in_.v.template data<T>() + token(position) * s_.value_size;
    return in_.window_v.template data<T>() + slot(position) * s_.value_size;
  }
  T* gradient(const Tensor& dv, int64_t position) const { return dv.data<T>() + token(position) * s_.value_size; }

  const T* carried_mean(int64_t c) const { return in_.mean.template data<T>() + carried_at(c) * s_.value_size; }
  T carried_count(int64_t c) const { return in_.count.template data<T>()[carried_at(c)]; }
  // Of a cache that blocks read.
  T* mean(const Tensor& means, int64_t b, int64_t c) const {
    const int64_t line = ((row_ * (s_.caches - 1) + b) * s_.kv_heads + head_) * s_.codes + begin_ + c;
    return means.data<T>() + line * s_.value_size;
  }
  // Of any.
  T* mean(const CacheMeans& all, int64_t b, int64_t c) const {
    return b + 1 < s_.caches ? mean(all.read, b, c) : all.last.data<T>() + carried_at(c) * s_.value_size;
  }
  T& count(const Tensor& counts, int64_t b, int64_t c) const { return counts.data<T>()[at(b, c)]; }

 private:
  const int32_t* origin() const { return in_.origin.data<int32_t>() + row_ * s_.caches; }
  const int32_t* limit() const { return in_.limit.data<int32_t>() + row_ * s_.caches; }
  int64_t token(int64_t position) const { return (row_ * s_.tokens + position) * s_.kv_heads + head_; }
  int64_t slot(int64_t position) const {
    const int64_t slot = (ring_head_ + position + s_.slots) % s_.slots;
    return (row_ * s_.slots + slot) * s_.kv_heads + head_;
  }
  const int32_t* code(int64_t position) const {
    return position >= 0 ? in_.codes.data<int32_t>() + token(position)
                         : in_.window_codes.data<int32_t>() + slot(position);
  }
  int64_t carried_at(int64_t c) const { return (row_ * s_.kv_heads + head_) * s_.codes + begin_ + c; }
  int64_t at(int64_t b, int64_t c) const {
    return ((row_ * s_.caches + b) * s_.kv_heads + head_) * s_.codes + begin_ + c;
  }

  std::pair<int64_t, int64_t> added(int64_t b) const {
    const int64_t first = begins(b) ? origin()[b] : std::max(origin()[b], limit()[b - 1]);
    const int64_t last = limit()[b];
    QUIRE_CHECK(first >= last || (first >= -s_.slots && last <= s_.tokens),
                "code_caches: tokens [{}, {}) of {} with a window of {}", first, last, s_.tokens, s_.slots);
    return {first, last};
  }

  const ops::CodeCacheInputs& in_;
  const CodeCacheSizes& s_;
  int64_t row_, head_, begin_, end_;
  std::vector<int64_t> offsets_;  // [caches, codes + 1]
  std::vector<int32_t> positions_;
  int64_t ring_head_;
};

template <typename T>
using Values = ArrayView<T>;
template <typename T>
using ConstValues = ConstArrayView<T>;

// to, count = those of `from`, n and of tokens with values `sum`, m: weights before sums, so that nothing grows.
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

// The mean of the tokens with code c that cache b adds; returns their number.
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

// One product for every code: caches are weighted means of what the row carried and of what each cache added.
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

// Recursive doubling: in a pass each cache takes in what lies `step` before it.
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

void code_caches(const Tensor& read, const Tensor& last, const Tensor& counts, const ops::CodeCacheInputs& in) {
  const CodeCacheSizes s(in);
  check_code_caches(s, read, last, counts, in);
  const CacheMeans means{read, last};
  dispatch("code_caches", in.v.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(s.rows * s.kv_heads * kCodeParts, [&](int64_t tile) {
      const CodePart<T> part(in, s, tile);
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

// A token is in its own cache and in those after it until one begins anew: sums run backwards.
void code_caches_backward(const Tensor& dv, const Tensor& dmeans, const Tensor& counts,
                          const ops::CodeCacheInputs& in) {
  const CodeCacheSizes s(in);
  check_code_caches_backward(s, dv, dmeans, counts, in);
  dispatch("code_caches_backward", in.v.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(s.rows * s.kv_heads * kCodeParts, [&](int64_t tile) {
      const CodePart<T> part(in, s, tile);
      T* const later = scratch<T>(0, part.codes() * s.value_size);
      for (int64_t b = s.caches - 1; b >= 0; --b) {
        const bool last = b + 1 == s.caches || part.begins(b + 1);
        for (int64_t c = 0; c < part.codes(); ++c) {
          Values<T> sum(later + c * s.value_size, s.value_size);
          if (last) sum.setZero();
          const T n = part.count(counts, b, c);
          if (b + 1 < s.caches && n > T{0}) sum += ConstValues<T>(part.mean(dmeans, b, c), s.value_size) * (T{1} / n);
          for (const int32_t p : part.tokens(b, c)) {
            if (p >= 0) Values<T>(part.gradient(dv, p), s.value_size) += sum;
          }
        }
      }
    });
  });
}

}  // namespace

void bind_vq_caches() {
  ops::code_caches.bind(DeviceKind::cpu, code_caches);
  ops::code_caches_backward.bind(DeviceKind::cpu, code_caches_backward);
}

}  // namespace quire::cpu
