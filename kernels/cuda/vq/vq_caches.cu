// Counts and mean values by codeword before every block, and their gradient. A block has one codeword of a row and
// head, and a thread has a pack of columns of the values. Its time is spent in three loads that depend on each other:
// the range of a cache's tokens, their positions, and their values.
#include "kernels/cuda/pack.h"
#include "kernels/cuda/vq/vq_caches.h"
#include "kernels/vq_sizes.h"

namespace quire::cuda {

namespace {

template <typename T>
struct CacheOperands {
  CodeCacheSizes s;
  const T *v, *window_v;
  const int32_t *window_head, *origin;
  const Wide<T>*mean, *count;
  const int32_t *positions, *ranges;  // as in TokensByCode
  bool aligned;                       // of all operands
};

// Holds the results of code_caches: caches that blocks read [R, B, Hk, S, Dv], and the last one [R, Hk, S, Dv].
template <typename T>
struct CacheMeans {
  T* read;
  Wide<T>* last;
};

// Describes one codeword of a row and head.
template <typename T>
struct Codeword {
  const CacheOperands<T>& in;
  int row, head, code;
  int index;  // among all codewords, whose numbers are keys of the sort

  __device__ Codeword(const CacheOperands<T>& operands, unsigned codeword)
      : in(operands),
        row(static_cast<int>(codeword / static_cast<unsigned>(operands.s.kv_heads * operands.s.codes))),
        head(static_cast<int>(codeword / static_cast<unsigned>(operands.s.codes) %
                              static_cast<unsigned>(operands.s.kv_heads))),
        code(static_cast<int>(codeword % static_cast<unsigned>(operands.s.codes))),
        index(static_cast<int>(codeword)) {}

  __device__ const int32_t* origin() const { return in.origin + row * in.s.caches; }
  __device__ bool begins(int64_t b) const { return begins_anew(origin(), b); }
  __device__ bool carried(int64_t b) const { return origin()[b] <= 0; }
  // Returns the index of the codeword in cache b.
  __device__ int64_t at(int64_t b) const {
    return ((row * in.s.caches + b) * in.s.kv_heads + head) * in.s.codes + code;
  }
  // Returns the index of its mean among the caches that are read: all but the last one of each row.
  __device__ int64_t read_at(int64_t b) const { return at(b) - row * in.s.kv_heads * in.s.codes; }
  template <int kPack>
  __device__ void store(const CacheMeans<T>& to, int64_t b, int64_t column, const Pack<Wide<T>, kPack>& mean) const {
    if (b + 1 == in.s.caches) {
      quire::cuda::store<kPack>(to.last + index * in.s.value_size + column, mean, in.aligned);
      return;
    }
    Pack<T, kPack> narrowed;
#pragma unroll
    for (int k = 0; k < kPack; ++k) narrowed.value[k] = narrow<T>(mean.value[k]);
    quire::cuda::store<kPack>(to.read + read_at(b) * in.s.value_size + column, narrowed, in.aligned);
  }

  // A range of the list of positions: the tokens that cache b adds.
  struct alignas(8) Range {
    int32_t first, last;
  };
  __device__ Range added(int64_t b) const {
    return reinterpret_cast<const Range*>(in.ranges)[at(b)];
  }
  // Returns the position of an entry of the list; below zero it lies in the ring.
  __device__ int64_t position(int64_t entry) const {
    return in.positions[entry] - in.s.slots;
  }
  __device__ int64_t token(int64_t position) const {
    return (row * in.s.tokens + position) * in.s.kv_heads + head;
  }
  template <int kPack>
  __device__ Pack<T, kPack> values(int64_t entry, int64_t column) const {
    const int64_t p = position(entry);
    if (p >= 0) return load<kPack>(in.v + token(p) * in.s.value_size + column, in.aligned);
    const int64_t slot = ((in.window_head[row] + p) % in.s.slots + in.s.slots) % in.s.slots;
    return load<kPack>(in.window_v + ((row * in.s.slots + slot) * in.s.kv_heads + head) * in.s.value_size + column,
                       in.aligned);
  }
};

// Holds the means of a pack of columns and the number of values in them.
template <typename A, int kPack>
struct Entry {
  Pack<A, kPack> mean{};
  A count = 0;
};
// Returns the weighted mean of two entries. Weights are computed first, so that no sum grows large.
template <typename A, int kPack>
__device__ inline Entry<A, kPack> merged(const Entry<A, kPack>& a, const Entry<A, kPack>& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  Entry<A, kPack> both;
  both.count = a.count + b.count;
  const A share = a.count / both.count;
  const A other = b.count / both.count;
#pragma unroll
  for (int k = 0; k < kPack; ++k) both.mean.value[k] = share * a.mean.value[k] + other * b.mean.value[k];
  return both;
}

template <int kPack, typename T>
__device__ inline Entry<Wide<T>, kPack> carried_entry(const Codeword<T>& word, int64_t column) {
  Entry<Wide<T>, kPack> entry;
  entry.count = word.in.count[word.index];
  if (entry.count == 0) return entry;
  entry.mean = load<kPack>(word.in.mean + word.index * word.in.s.value_size + column, word.in.aligned);
  return entry;
}

template <int kPack, typename T>
__device__ inline Entry<Wide<T>, kPack> added_entry(const Codeword<T>& word, const typename Codeword<T>::Range& range,
                                                    int64_t column) {
  Entry<Wide<T>, kPack> entry;
  if (range.last == range.first) return entry;
  for (int64_t i = range.first; i < range.last; ++i) {
    const Pack<T, kPack> values = word.template values<kPack>(i, column);
#pragma unroll
    for (int k = 0; k < kPack; ++k) entry.mean.value[k] += wide(values.value[k]);
  }
  entry.count = static_cast<Wide<T>>(range.last - range.first);
  const Wide<T> share = Wide<T>{1} / entry.count;
#pragma unroll
  for (int k = 0; k < kPack; ++k) entry.mean.value[k] *= share;
  return entry;
}

// Return the first column of a thread, and the distance from one of its packs to the next.
template <int kPack>
__device__ inline int64_t first_column() {
  return static_cast<int64_t>(threadIdx.x) * kPack;
}
template <int kPack>
__device__ inline int64_t column_stride() {
  return static_cast<int64_t>(blockDim.x) * kPack;
}

// Computes one cache after the other.
template <typename T, int kPack>
__global__ void __launch_bounds__(kBlock, 4) serial_kernel(CacheMeans<T> means, Wide<T>* counts, CacheOperands<T> in) {
  using E = Entry<Wide<T>, kPack>;
  const Codeword<T> word(in, blockIdx.x);
  for (int64_t column = first_column<kPack>(); column < in.s.value_size; column += column_stride<kPack>()) {
    E now;
    auto next = word.added(0);
    for (int64_t b = 0; b < in.s.caches; ++b) {
      const auto range = next;
      if (b + 1 < in.s.caches) next = word.added(b + 1);  // on its way while this one is added
      if (word.begins(b)) now = word.carried(b) ? carried_entry<kPack>(word, column) : E{};
      now = merged(now, added_entry<kPack>(word, range, column));
      word.store(means, b, column, now.mean);
      if (column == 0) counts[word.at(b)] = now.count;
    }
  }
}

// Computes what each cache adds. If with_carried, caches that begin anew include what the row carried.
template <typename T, int kPack>
__global__ void additions_kernel(Wide<T>* means, Wide<T>* counts, CacheOperands<T> in, bool with_carried) {
  const Codeword<T> word(in, blockIdx.x);
  const int64_t b = blockIdx.y;
  const bool takes = with_carried && word.begins(b) && word.carried(b);
  for (int64_t column = first_column<kPack>(); column < in.s.value_size; column += column_stride<kPack>()) {
    auto entry = added_entry<kPack>(word, word.added(b), column);
    if (takes) entry = merged(carried_entry<kPack>(word, column), entry);
    store<kPack>(means + word.at(b) * in.s.value_size + column, entry.mean, in.aligned);
    if (column == 0) counts[word.at(b)] = entry.count;
  }
}

// Computes caches as weighted means of what was carried and of what each cache of the same run added.
template <typename T, int kPack>
__global__ void weighted_kernel(CacheMeans<T> means, Wide<T>* counts, const Wide<T>* added_means,
                                const Wide<T>* added_counts, CacheOperands<T> in) {
  using A = Wide<T>;
  const Codeword<T> word(in, blockIdx.x);
  const int64_t b = blockIdx.y;
  int64_t begin = b;
  while (!word.begins(begin)) --begin;
  A total = word.carried(b) ? in.count[word.index] : A{0};
  for (int64_t g = begin; g <= b; ++g) total += added_counts[word.at(g)];
  for (int64_t column = first_column<kPack>(); column < in.s.value_size; column += column_stride<kPack>()) {
    Pack<A, kPack> sum{};
    const auto add = [&](A share, const Pack<A, kPack>& mean) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum.value[k] += share * mean.value[k];
    };
    if (total != 0) {
      if (word.carried(b)) {
        const auto carried = carried_entry<kPack>(word, column);
        add(carried.count / total, carried.mean);
      }
      for (int64_t g = begin; g <= b; ++g) {
        add(added_counts[word.at(g)] / total,
            load<kPack>(added_means + word.at(g) * in.s.value_size + column, in.aligned));
      }
    }
    word.store(means, b, column, sum);
    if (column == 0) counts[word.at(b)] = total;
  }
}

// Runs a pass of recursive doubling: each cache adds the one `step` before it in the same run.
template <typename T, int kPack>
__global__ void doubling_kernel(Wide<T>* means, Wide<T>* counts, const Wide<T>* means_before,
                                const Wide<T>* counts_before, CacheOperands<T> in, int64_t step) {
  using E = Entry<Wide<T>, kPack>;
  const Codeword<T> word(in, blockIdx.x);
  const int64_t b = blockIdx.y;
  bool takes = b >= step;
  for (int64_t other = b; takes && other > b - step; --other) takes = !word.begins(other);
  const int64_t size = in.s.value_size;
  const int64_t at = word.at(b);
  for (int64_t column = first_column<kPack>(); column < size; column += column_stride<kPack>()) {
    const auto entry_at = [&](int64_t place) {
      return E{load<kPack>(means_before + place * size + column, in.aligned), counts_before[place]};
    };
    E entry = entry_at(at);
    if (takes) entry = merged(entry_at(word.at(b - step)), entry);
    store<kPack>(means + at * size + column, entry.mean, in.aligned);
    if (column == 0) counts[at] = entry.count;
  }
}

template <typename T, int kPack>
__global__ void store_kernel(CacheMeans<T> means, Wide<T>* counts, const Wide<T>* all_means, const Wide<T>* all_counts,
                             CacheOperands<T> in) {
  const Codeword<T> word(in, blockIdx.x);
  const int64_t b = blockIdx.y;
  for (int64_t column = first_column<kPack>(); column < in.s.value_size; column += column_stride<kPack>()) {
    word.store(means, b, column, load<kPack>(all_means + word.at(b) * in.s.value_size + column, in.aligned));
    if (column == 0) counts[word.at(b)] = all_counts[word.at(b)];
  }
}

// Computes dv. A token is in its own cache and in those after it until one begins anew, so sums run backwards.
template <typename T, int kPack>
__global__ void caches_backward_kernel(T* dv, const T* dmeans, const Wide<T>* counts, CacheOperands<T> in) {
  using A = Wide<T>;
  const Codeword<T> word(in, blockIdx.x);
  for (int64_t column = first_column<kPack>(); column < in.s.value_size; column += column_stride<kPack>()) {
    Pack<A, kPack> later{};
    auto next = word.added(in.s.caches - 1);
    for (int64_t b = in.s.caches - 1; b >= 0; --b) {
      const auto range = next;
      if (b > 0) next = word.added(b - 1);
      if (b + 1 == in.s.caches || word.begins(b + 1)) later = {};
      const A n = counts[word.at(b)];
      if (n > 0 && b + 1 < in.s.caches) {
        const Pack<T, kPack> gradient = load<kPack>(dmeans + word.read_at(b) * in.s.value_size + column, in.aligned);
        const A share = A{1} / n;
#pragma unroll
        for (int k = 0; k < kPack; ++k) later.value[k] += wide(gradient.value[k]) * share;
      }
      for (int64_t i = range.first; i < range.last; ++i) {
        const int64_t p = word.position(i);
        if (p < 0) continue;
        T* const to = dv + word.token(p) * in.s.value_size + column;
        Pack<T, kPack> sum = load<kPack>(to, in.aligned);
#pragma unroll
        for (int k = 0; k < kPack; ++k) sum.value[k] = narrow<T>(wide(sum.value[k]) + later.value[k]);
        store<kPack>(to, sum, in.aligned);
      }
    }
  }
}

// `aligned` describes the tensors that are read or written beside `in`.
template <typename T>
CacheOperands<T> operands_of(const ops::CodeCacheInputs& in, const ops::TokensByCode& by_code,
                             const CodeCacheSizes& sizes, bool aligned) {
  return {sizes,
          in.v.data<T>(),
          in.window_v.defined() ? in.window_v.data<T>() : nullptr,
          data_or_null<int32_t>(in.tokens.window_head),
          in.tokens.origin.data<int32_t>(),
          in.mean.data<Wide<T>>(),
          in.count.data<Wide<T>>(),
          by_code.positions.data<int32_t>(),
          by_code.ranges.data<int32_t>(),
          aligned && are_aligned({in.v.raw(), in.mean.raw()}) &&
              (!in.window_v.defined() || are_aligned({in.window_v.raw()}))};
}

// Returns the threads of a block: whole warps, no more than the values need.
int threads_for(int64_t value_size, int pack) {
  const int64_t threads = ceil_div(ceil_div(value_size, int64_t{pack}), int64_t{kWarp}) * kWarp;
  return static_cast<int>(threads < kBlock ? threads : kBlock);
}

template <typename T, int kPack>
void fill_caches(const Tensor& read, const Tensor& last, const Tensor& counts, const ops::CodeCacheInputs& in,
                 const ops::TokensByCode& by_code, const CodeCacheSizes& s) {
  using A = Wide<T>;
  const int threads = threads_for(s.value_size, kPack);
  const auto words = static_cast<unsigned>(s.rows * s.kv_heads * s.codes);
  const dim3 all(words, static_cast<unsigned>(s.caches));
  const auto operands = operands_of<T>(in, by_code, s, are_aligned({read.raw(), last.raw()}));
  const CacheMeans<T> means{read.data<T>(), last.data<A>()};
  if (in.reduction == ops::CodeReduction::serial) {
    launch(serial_kernel<T, kPack>, dim3(words), threads, 0, means, counts.data<A>(), operands);
    return;
  }
  // These hold all caches, the last one like the others.
  const Shape shape{s.rows, s.caches, s.kv_heads, s.codes, s.value_size};
  Tensor from_means = Tensor::empty(shape, dtype_of<A>(), in.v.device());
  Tensor from_counts = Tensor::empty_like(counts);
  const bool doubles = in.reduction == ops::CodeReduction::scan;
  launch(additions_kernel<T, kPack>, all, threads, 0, from_means.data<A>(), from_counts.data<A>(), operands, doubles);
  if (!doubles) {
    launch(weighted_kernel<T, kPack>, all, threads, 0, means, counts.data<A>(), from_means.data<A>(),
           from_counts.data<A>(), operands);
    return;
  }
  Tensor to_means = Tensor::empty_like(from_means);
  Tensor to_counts = Tensor::empty_like(from_counts);
  for (int64_t step = 1; step < s.caches; step *= 2) {
    launch(doubling_kernel<T, kPack>, all, threads, 0, to_means.data<A>(), to_counts.data<A>(), from_means.data<A>(),
           from_counts.data<A>(), operands, step);
    std::swap(to_means, from_means);
    std::swap(to_counts, from_counts);
  }
  launch(store_kernel<T, kPack>, all, threads, 0, means, counts.data<A>(), from_means.data<A>(), from_counts.data<A>(),
         operands);
}

void code_caches(const Tensor& read, const Tensor& last, const Tensor& counts, const ops::CodeCacheInputs& in,
                 const ops::TokensByCode& by_code) {
  const CodeCacheSizes s(in);
  check_code_caches(s, read, last, counts, in, by_code);
  if (s.caches > 65535) throw DeviceError("code_caches: more than 65535 blocks in a subsequence");
  dispatch(in.v.dtype(), [&](auto type) {
    using T = decltype(type);
    with_pack<T>(s.value_size,
                 [&](auto pack) { fill_caches<T, decltype(pack)::value>(read, last, counts, in, by_code, s); });
  });
}

void code_caches_backward(const Tensor& dv, const Tensor& dmeans, const Tensor& counts, const ops::CodeCacheInputs& in,
                          const ops::TokensByCode& by_code) {
  const CodeCacheSizes s(in);
  check_code_caches_backward(s, dv, dmeans, counts, in, by_code);
  dispatch(in.v.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto operands = operands_of<T>(in, by_code, s, are_aligned({dv.raw(), dmeans.raw()}));
    with_pack<T>(s.value_size, [&](auto pack) {
      constexpr int kPack = decltype(pack)::value;
      launch(caches_backward_kernel<T, kPack>, dim3(static_cast<unsigned>(s.rows * s.kv_heads * s.codes)),
             threads_for(s.value_size, kPack), 0, dv.data<T>(), dmeans.data<T>(), counts.data<Wide<T>>(), operands);
    });
  });
}

}  // namespace

void bind_vq_caches() {
  ops::code_caches.bind(DeviceKind::cuda, code_caches);
  ops::code_caches_backward.bind(DeviceKind::cuda, code_caches_backward);
}

}  // namespace quire::cuda
