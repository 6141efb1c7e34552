// Counts and mean values by codeword before every block, and their gradient. Tokens are sorted by row, head and code,
// in order of position; a block has one codeword and finds the tokens that a cache adds in its part of that list.
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sort.h"
#include "kernels/vq_sizes.h"

namespace quire::cuda {

namespace {

struct Sizes {
  int64_t rows, tokens, kv_heads, codes, value_size, slots, caches;
};

template <typename T>
struct CacheOperands {
  Sizes s;
  const T *v, *window_v;
  const int32_t *window_head, *origin, *limit;
  const Wide<T>*mean, *count;
  const int32_t *keys, *positions;  // sorted; positions count from the ring's first, -C
  int64_t listed;
};

// The codeword of every token and slot among those of all rows and heads; tokens without one get the number after the
// last.
__global__ void number_kernel(int32_t* keys, int32_t* positions, const int32_t* codes, const int32_t* window_codes,
                              const int32_t* window_head, Sizes s) {
  const int64_t per_row = s.slots + s.tokens;
  for (int64_t i = first_element(); i < s.rows * per_row * s.kv_heads; i += element_stride()) {
    const int64_t head = i % s.kv_heads;
    const int64_t at = i / s.kv_heads % per_row;
    const int64_t row = i / s.kv_heads / per_row;
    const int64_t position = at - s.slots;
    int64_t code;
    if (position >= 0) {
      code = codes[(row * s.tokens + position) * s.kv_heads + head];
    } else {
      const int64_t slot = ((window_head[row] + position) % s.slots + s.slots) % s.slots;
      code = window_codes[(row * s.slots + slot) * s.kv_heads + head];
    }
    const bool enters = code >= 0 && code < s.codes;
    keys[i] = static_cast<int32_t>(enters ? (row * s.kv_heads + head) * s.codes + code : s.rows * s.kv_heads * s.codes);
    positions[i] = static_cast<int32_t>(at);
  }
}

// The first of sorted numbers [low, high) that is not below `value`.
__device__ inline int64_t lower_bound(const int32_t* numbers, int64_t low, int64_t high, int64_t value) {
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (numbers[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// What code_caches returns: caches that blocks read [R, B, Hk, S, Dv], and the last one [R, Hk, S, Dv].
template <typename T>
struct CacheMeans {
  T* read;
  Wide<T>* last;
};

// One codeword of a row and head.
template <typename T>
struct Codeword {
  const CacheOperands<T>& in;
  int64_t row, head, index;  // index: among all codewords
  int64_t begin, end;        // in the list

  __device__ Codeword(const CacheOperands<T>& operands, int64_t codeword)
      : in(operands),
        row(codeword / (operands.s.kv_heads * operands.s.codes)),
        head(codeword / operands.s.codes % operands.s.kv_heads),
        index(codeword),
        begin(lower_bound(operands.keys, 0, operands.listed, codeword)),
        end(lower_bound(operands.keys, begin, operands.listed, codeword + 1)) {}

  __device__ const int32_t* origin() const { return in.origin + row * in.s.caches; }
  __device__ const int32_t* limit() const { return in.limit + row * in.s.caches; }
  __device__ bool begins(int64_t b) const { return b == 0 || origin()[b] != origin()[b - 1]; }
  __device__ bool carried(int64_t b) const { return origin()[b] <= 0; }
  // Of the codeword in cache b.
  __device__ int64_t at(int64_t b) const {
    return ((row * in.s.caches + b) * in.s.kv_heads + head) * in.s.codes + index % in.s.codes;
  }
  // Of its mean among the caches that are read: all but the last one of each row.
  __device__ int64_t read_at(int64_t b) const { return at(b) - row * in.s.kv_heads * in.s.codes; }
  __device__ void store(const CacheMeans<T>& to, int64_t b, int64_t column, Wide<T> mean) const {
    if (b + 1 == in.s.caches) {
      to.last[index * in.s.value_size + column] = mean;
    } else {
      to.read[read_at(b) * in.s.value_size + column] = narrow<T>(mean);
    }
  }

  // The part of the list that cache b adds. Positions outside the ring and the tokens are not there.
  struct Range {
    int64_t first, last;
  };
  __device__ Range added(int64_t b) const {
    int64_t low = origin()[b];
    if (!begins(b) && limit()[b - 1] > low) low = limit()[b - 1];
    const int64_t first = lower_bound(in.positions, begin, end, low + in.s.slots);
    const int64_t last = lower_bound(in.positions, begin, end, limit()[b] + in.s.slots);
    return {first, last < first ? first : last};
  }
  // Position of an entry of the list: below zero in the ring.
  __device__ int64_t position(int64_t entry) const { return in.positions[entry] - in.s.slots; }
  __device__ int64_t token(int64_t position) const { return (row * in.s.tokens + position) * in.s.kv_heads + head; }
  __device__ Wide<T> value(int64_t entry, int64_t column) const {
    const int64_t p = position(entry);
    if (p >= 0) return wide(in.v[token(p) * in.s.value_size + column]);
    const int64_t slot = ((in.window_head[row] + p) % in.s.slots + in.s.slots) % in.s.slots;
    return wide(in.window_v[((row * in.s.slots + slot) * in.s.kv_heads + head) * in.s.value_size + column]);
  }
  __device__ Wide<T> mean_of(Range range, int64_t column) const {
    Wide<T> sum = 0;
    for (int64_t i = range.first; i < range.last; ++i) sum += value(i, column);
    return range.last > range.first ? sum / static_cast<Wide<T>>(range.last - range.first) : Wide<T>{0};
  }
};

// A mean and how many it is of.
template <typename A>
struct Entry {
  A mean, count;
};
// Weights before values, so that nothing grows.
template <typename A>
__device__ inline Entry<A> merged(const Entry<A>& a, const Entry<A>& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const A count = a.count + b.count;
  return {a.count / count * a.mean + b.count / count * b.mean, count};
}

template <typename T>
__device__ inline Entry<Wide<T>> carried_entry(const Codeword<T>& word, int64_t column) {
  const Wide<T> count = word.in.count[word.index];
  return {count == 0 ? Wide<T>{0} : word.in.mean[word.index * word.in.s.value_size + column], count};
}

// One cache after the other.
template <typename T>
__global__ void serial_kernel(CacheMeans<T> means, Wide<T>* counts, CacheOperands<T> in) {
  using A = Wide<T>;
  const Codeword<T> word(in, blockIdx.x);
  for (int64_t column = threadIdx.x; column < in.s.value_size; column += blockDim.x) {
    Entry<A> now{0, 0};
    for (int64_t b = 0; b < in.s.caches; ++b) {
      if (word.begins(b)) now = word.carried(b) ? carried_entry(word, column) : Entry<A>{0, 0};
      const auto range = word.added(b);
      now = merged(now, Entry<A>{word.mean_of(range, column), static_cast<A>(range.last - range.first)});
      word.store(means, b, column, now.mean);
      if (column == 0) counts[word.at(b)] = now.count;
    }
  }
}

// What each cache adds; with_carried: those that begin anew take in what the row carried.
template <typename T>
__global__ void additions_kernel(Wide<T>* means, Wide<T>* counts, CacheOperands<T> in, bool with_carried) {
  using A = Wide<T>;
  const Codeword<T> word(in, blockIdx.x);
  const int64_t b = blockIdx.y;
  const auto range = word.added(b);
  const bool takes = with_carried && word.begins(b) && word.carried(b);
  for (int64_t column = threadIdx.x; column < in.s.value_size; column += blockDim.x) {
    Entry<A> entry{word.mean_of(range, column), static_cast<A>(range.last - range.first)};
    if (takes) entry = merged(carried_entry(word, column), entry);
    means[word.at(b) * in.s.value_size + column] = entry.mean;
    if (column == 0) counts[word.at(b)] = entry.count;
  }
}

// Caches as weighted means of what was carried and of what each cache of the same run added.
template <typename T>
__global__ void weighted_kernel(CacheMeans<T> means, Wide<T>* counts, const Wide<T>* added_means,
                                const Wide<T>* added_counts, CacheOperands<T> in) {
  using A = Wide<T>;
  const Codeword<T> word(in, blockIdx.x);
  const int64_t b = blockIdx.y;
  int64_t begin = b;
  while (!word.begins(begin)) --begin;
  A total = word.carried(b) ? in.count[word.index] : A{0};
  for (int64_t g = begin; g <= b; ++g) total += added_counts[word.at(g)];
  for (int64_t column = threadIdx.x; column < in.s.value_size; column += blockDim.x) {
    A sum = 0;
    if (total != 0) {
      if (word.carried(b)) {
        const Entry<A> carried = carried_entry(word, column);
        sum += carried.count / total * carried.mean;
      }
      for (int64_t g = begin; g <= b; ++g) {
        sum += added_counts[word.at(g)] / total * added_means[word.at(g) * in.s.value_size + column];
      }
    }
    word.store(means, b, column, sum);
    if (column == 0) counts[word.at(b)] = total;
  }
}

// A pass of recursive doubling: each cache takes in what lies `step` before it in the same run.
template <typename T>
__global__ void doubling_kernel(Wide<T>* means, Wide<T>* counts, const Wide<T>* means_before,
                                const Wide<T>* counts_before, CacheOperands<T> in, int64_t step) {
  using A = Wide<T>;
  const Codeword<T> word(in, blockIdx.x);
  const int64_t b = blockIdx.y;
  bool takes = b >= step;
  for (int64_t other = b; takes && other > b - step; --other) takes = !word.begins(other);
  const int64_t size = in.s.value_size;
  const int64_t at = word.at(b);
  for (int64_t column = threadIdx.x; column < size; column += blockDim.x) {
    Entry<A> entry{means_before[at * size + column], counts_before[at]};
    if (takes) {
      const int64_t before = word.at(b - step);
      entry = merged(Entry<A>{means_before[before * size + column], counts_before[before]}, entry);
    }
    means[at * size + column] = entry.mean;
    if (column == 0) counts[at] = entry.count;
  }
}

template <typename T>
__global__ void store_kernel(CacheMeans<T> means, Wide<T>* counts, const Wide<T>* all_means, const Wide<T>* all_counts,
                             CacheOperands<T> in) {
  const Codeword<T> word(in, blockIdx.x);
  const int64_t b = blockIdx.y;
  for (int64_t column = threadIdx.x; column < in.s.value_size; column += blockDim.x) {
    word.store(means, b, column, all_means[word.at(b) * in.s.value_size + column]);
    if (column == 0) counts[word.at(b)] = all_counts[word.at(b)];
  }
}

// A token is in its own cache and in those after it until one begins anew: sums run backwards.
template <typename T>
__global__ void caches_backward_kernel(T* dv, const T* dmeans, const Wide<T>* counts, CacheOperands<T> in) {
  using A = Wide<T>;
  const Codeword<T> word(in, blockIdx.x);
  for (int64_t column = threadIdx.x; column < in.s.value_size; column += blockDim.x) {
    A later = 0;
    for (int64_t b = in.s.caches - 1; b >= 0; --b) {
      if (b + 1 == in.s.caches || word.begins(b + 1)) later = 0;
      const A n = counts[word.at(b)];
      if (n > 0 && b + 1 < in.s.caches) later += wide(dmeans[word.read_at(b) * in.s.value_size + column]) / n;
      const auto range = word.added(b);
      for (int64_t i = range.first; i < range.last; ++i) {
        const int64_t p = word.position(i);
        if (p < 0) continue;
        T* const to = dv + word.token(p) * in.s.value_size + column;
        *to = narrow<T>(wide(*to) + later);
      }
    }
  }
}

// The sorted list and the operands that point into it.
template <typename T>
struct SortedTokens {
  Tensor numbered;
  CacheOperands<T> operands;

  SortedTokens(const ops::CodeCacheInputs& in, const CodeCacheSizes& sizes) {
    const Sizes s{sizes.rows, sizes.tokens, sizes.kv_heads, sizes.codes, sizes.value_size, sizes.slots, sizes.caches};
    const int64_t listed = s.rows * (s.slots + s.tokens) * s.kv_heads;
    numbered = Tensor::empty({4, listed}, DType::i32, in.v.device());
    const auto part = [&](int64_t index) { return numbered.select(0, index); };
    const auto or_null = [](const Tensor& t) -> const int32_t* { return t.defined() ? t.data<int32_t>() : nullptr; };
    if (listed > 0) {
      launch(number_kernel, blocks_for(listed), kBlock, 0, part(0).template data<int32_t>(),
             part(1).template data<int32_t>(), in.codes.data<int32_t>(), or_null(in.window_codes),
             or_null(in.window_head), s);
      sort_pairs(part(2), part(3), part(0), part(1), bits_of(s.rows * s.kv_heads * s.codes));
    }
    operands = {s,
                in.v.data<T>(),
                in.window_v.defined() ? in.window_v.data<T>() : nullptr,
                or_null(in.window_head),
                in.origin.data<int32_t>(),
                in.limit.data<int32_t>(),
                in.mean.data<Wide<T>>(),
                in.count.data<Wide<T>>(),
                part(2).template data<int32_t>(),
                part(3).template data<int32_t>(),
                listed};
  }
};

// Whole warps, no more than the values need.
int threads_for(int64_t value_size) {
  const int64_t threads = ceil_div(value_size, int64_t{kWarp}) * kWarp;
  return static_cast<int>(threads < kBlock ? threads : kBlock);
}

void code_caches(const Tensor& read, const Tensor& last, const Tensor& counts, const ops::CodeCacheInputs& in) {
  const CodeCacheSizes s(in);
  check_code_caches(s, read, last, counts, in);
  if (s.caches > 65535) throw DeviceError("code_caches: more than 65535 blocks in a subsequence");
  const int threads = threads_for(s.value_size);
  const auto words = static_cast<unsigned>(s.rows * s.kv_heads * s.codes);
  const dim3 all(words, static_cast<unsigned>(s.caches));
  dispatch(in.v.dtype(), [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    const SortedTokens<T> tokens(in, s);
    const CacheMeans<T> means{read.data<T>(), last.data<A>()};
    if (in.reduction == ops::CodeReduction::serial) {
      launch(serial_kernel<T>, dim3(words), threads, 0, means, counts.data<A>(), tokens.operands);
      return;
    }
    // Of all caches, the last one like the others.
    const Shape shape{s.rows, s.caches, s.kv_heads, s.codes, s.value_size};
    Tensor from_means = Tensor::empty(shape, dtype_of<A>(), in.v.device());
    Tensor from_counts = Tensor::empty_like(counts);
    const bool doubles = in.reduction == ops::CodeReduction::scan;
    launch(additions_kernel<T>, all, threads, 0, from_means.data<A>(), from_counts.data<A>(), tokens.operands, doubles);
    if (!doubles) {
      launch(weighted_kernel<T>, all, threads, 0, means, counts.data<A>(), from_means.data<A>(), from_counts.data<A>(),
             tokens.operands);
      return;
    }
    Tensor to_means = Tensor::empty_like(from_means);
    Tensor to_counts = Tensor::empty_like(from_counts);
    for (int64_t step = 1; step < s.caches; step *= 2) {
      launch(doubling_kernel<T>, all, threads, 0, to_means.data<A>(), to_counts.data<A>(), from_means.data<A>(),
             from_counts.data<A>(), tokens.operands, step);
      std::swap(to_means, from_means);
      std::swap(to_counts, from_counts);
    }
    launch(store_kernel<T>, all, threads, 0, means, counts.data<A>(), from_means.data<A>(), from_counts.data<A>(),
           tokens.operands);
  });
}

void code_caches_backward(const Tensor& dv, const Tensor& dmeans, const Tensor& counts,
                          const ops::CodeCacheInputs& in) {
  const CodeCacheSizes s(in);
  check_code_caches_backward(s, dv, dmeans, counts, in);
  dispatch(in.v.dtype(), [&](auto type) {
    using T = decltype(type);
    const SortedTokens<T> tokens(in, s);
    launch(caches_backward_kernel<T>, dim3(static_cast<unsigned>(s.rows * s.kv_heads * s.codes)),
           threads_for(s.value_size), 0, dv.data<T>(), dmeans.data<T>(), counts.data<Wide<T>>(), tokens.operands);
  });
}

}  // namespace

void bind_vq_caches() {
  ops::code_caches.bind(DeviceKind::cuda, code_caches);
  ops::code_caches_backward.bind(DeviceKind::cuda, code_caches_backward);
}

}  // namespace quire::cuda
