#include "kernels/listed_attention.h"

#include <numeric>

#include "kernels/cpu/listed_backward.h"
#include "kernels/cpu/listed_queries.h"

namespace quire::cpu {

namespace {

// Calls function(T{}, S{}) with the types of queries and of stored keys and values.
template <typename Function>
void dispatch_both(const ops::ListedAttentionInputs& in, Function&& function) {
  dispatch("listed_attention", in.q.dtype(), [&](auto type) {
    if (in.keys.dtype() == in.q.dtype()) return function(type, type);
    function(type, bfloat16{});
  });
}

// p: logits [S, lanes]; those of the first `whole` lanes become weight * p. log_sums: the log of each query's divisor.
template <typename T>
void weigh(T* p, T* log_sums, int64_t lanes, int64_t whole, int64_t length, T weight, bool softmax_one) {
  const Vector<T> zero{};
  for (int64_t a = 0; a < whole; a += kLanes<T>) {
    T* const x = p + a;
    Vector<T> top = softmax_one ? zero : std::numeric_limits<T>::lowest() - zero;
    for (int64_t j = 0; j < length; ++j) top = larger<T>(top, load_vector(x + j * lanes));
    Vector<T> sum = softmax_one ? exponential<T>(-top) : zero;
    for (int64_t j = 0; j < length; ++j) {
      const Vector<T> value = exponential<T>(load_vector(x + j * lanes) - top);
      store_vector(x + j * lanes, value);
      sum += value;
    }
    // The sum is 0 when all logits are -inf.
    const Vector<T> factor = sum == zero ? zero : weight / sum;
    for (int64_t j = 0; j < length; ++j) store_vector(x + j * lanes, load_vector(x + j * lanes) * factor);
    store_vector(log_sums + a, top);
    for (int64_t i = 0; i < kLanes<T>; ++i) log_sums[a + i] += std::log(sum[i]);
  }
}

// Does the same, with the same bits, for one query whose logits are adjacent. There must be room for a vector after
// them.
template <typename T>
T weigh(T* p, int64_t length, T weight, bool softmax_one) {
  const Vector<T> zero{};
  T top = softmax_one ? T{0} : std::numeric_limits<T>::lowest();
  for (int64_t j = 0; j < length; ++j) top = p[j] > top ? p[j] : top;
  for (int64_t j = 0; j < length; j += kLanes<T>) {
    store_vector(p + j, exponential<T>(load_vector(p + j) - (top + zero)));
  }
  T sum = softmax_one ? exponential<T>(-(top + zero))[0] : T{0};
  for (int64_t j = 0; j < length; ++j) sum += p[j];
  ArrayView<T>(p, length) *= sum == T{0} ? T{0} : weight / sum;
  return top + std::log(sum);
}

template <typename T, typename S>
void forward_tile(const Tensor& out, const Tensor& lse, const ops::ListedAttentionInputs& in, const ListedSizes& s,
                  const QueryRun& tile, int64_t head) {
  const int64_t lanes = lanes_of<T>(tile), whole = whole_lanes<T>(tile);
  const int64_t kv_head = head / s.group();
  const int64_t stride = s.heads * s.value_size;
  const T* const from = in.q.data<T>() + line_of(s, tile, head, s.size);
  T* const to = out.data<T>() + line_of(s, tile, head, s.value_size);
  T* const log_sums = lse.data<T>() + lse_of(s, tile, head);
  T* const q = scratch<T>(0, s.size * lanes);
  T* const p = scratch<T>(1, s.length * lanes);
  LinesByFeature<T> by_feature(s, s.size, 4);
  T* const one = scratch<T>(5, s.size + by_feature.lanes());  // a query, and its logits
  if (tile.list >= 0) {
    turn_queries(q, whole, from, s.heads * s.size, tile.count, s.size, static_cast<T>(in.scale));
  }
  std::array<T, kListQueries> own;
  bool written = false;
  for (int64_t n = 0; n < s.chosen; ++n) {
    const int64_t chunk = tile.list < 0 ? -1 : chunk_of(in, s, tile, n);
    if (chunk < 0) {
      for (int64_t a = 0; a < tile.count; ++a) log_sums[a * s.chosen + n] = 0;
      continue;
    }
    const Operand<T> keys = chunk_lines<T, S>(in.keys, s, chunk, kv_head, s.size, 2);
    const T weight = in.weight.data<T>()[(tile.row * s.lists + tile.list) * s.chosen + n];
    block_product(p, lanes, keys, q, whole, s.length, whole, s.size, false);
    weigh(p, own.data(), lanes, whole, s.length, weight, in.softmax_one);
    if (whole < tile.count) by_feature.load(keys);
    for (int64_t a = whole; a < tile.count; ++a) {
      T* const logits = one + s.size;
      for (int64_t f = 0; f < s.size; ++f) one[f] = from[a * s.heads * s.size + f] * static_cast<T>(in.scale);
      by_feature.multiply(logits, one);
      own[static_cast<size_t>(a)] = weigh(logits, s.length, weight, in.softmax_one);
      column_of(p + a, lanes, s.length) = ArrayView<T>(logits, s.length);
    }
    for (int64_t a = 0; a < tile.count; ++a) log_sums[a * s.chosen + n] = own[static_cast<size_t>(a)];
    const Operand<T> values = chunk_lines<T, S>(in.values, s, chunk, kv_head, s.value_size, 3);
    block_product(to, stride, Operand<T>{p, lanes, true}, values.data, values.stride, tile.count, s.value_size,
                  s.length, written);
    written = true;
  }
  for (int64_t a = 0; a < tile.count && !written; ++a) std::fill_n(to + a * stride, s.value_size, T{0});
}

// Returns groups of runs that must be processed in order because they add to the same gradients of keys and values:
// those of rows that share chunks, directly or through other rows. Chunks of different groups are disjoint. Without
// these gradients every run is a group.
std::vector<std::vector<QueryRun>> groups_of(const std::vector<QueryRun>& runs, const ops::ListedAttentionInputs& in,
                                             const ListedSizes& s, bool shared) {
  std::vector<std::vector<QueryRun>> groups;
  if (!shared) {
    for (const QueryRun& run : runs) groups.push_back({run});
    return groups;
  }
  std::vector<int64_t> parent(static_cast<size_t>(s.rows));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int64_t row) {
    while (parent[static_cast<size_t>(row)] != row) row = parent[static_cast<size_t>(row)];
    return row;
  };
  std::vector<int64_t> reader(static_cast<size_t>(s.blocks), -1);
  const int32_t* const chosen = in.blocks.data<int32_t>();
  for (int64_t i = 0; i < in.blocks.numel(); ++i) {
    if (chosen[i] < 0) continue;
    int64_t& first = reader[static_cast<size_t>(chosen[i])];
    const int64_t own = root(i / (s.lists * s.chosen));
    if (first < 0) first = own;
    const int64_t other = root(first);
    parent[static_cast<size_t>(std::max(own, other))] = std::min(own, other);
  }
  groups.resize(static_cast<size_t>(s.rows));
  for (const QueryRun& run : runs) groups[static_cast<size_t>(root(run.row))].push_back(run);
  return groups;
}

void attend_by_list(const Tensor& out, const Tensor& lse, const ops::ListedAttentionInputs& in, const ListedSizes& s) {
  const std::vector<QueryRun> runs = query_runs(in, s);
  dispatch_both(in, [&](auto type, auto stored) {
    using T = decltype(type);
    std::vector<QueryRun> tiles;
    for (const QueryRun& run : runs) for_query_tiles<T>(run, [&](const QueryRun& tile) { tiles.push_back(tile); });
    const auto count = static_cast<int64_t>(tiles.size());
    parallel_for(count * s.heads, [&](int64_t n) {
      forward_tile<T, decltype(stored)>(out, lse, in, s, tiles[static_cast<size_t>(n % count)], n / count);
    });
  });
}

void gradients_by_list(const ops::ListedAttentionGradients& g, const Tensor& dout, const Tensor& lse,
                       const ops::ListedAttentionInputs& in, const ListedSizes& s) {
  const bool shared = g.dkeys.defined() || g.dvalues.defined();
  const std::vector<std::vector<QueryRun>> groups = groups_of(query_runs(in, s), in, s, shared);
  for (const Tensor* gradient : {&g.dkeys, &g.dvalues, &g.dweight}) {
    if (gradient->defined()) gradient->zero();
  }
  dispatch_both(in, [&](auto type, auto stored) {
    using T = decltype(type);
    std::vector<T> dweight(static_cast<size_t>(g.dweight.defined() ? s.kv_heads * g.dweight.numel() : 0));
    const ListBackward<T, decltype(stored)> backward{g, dout, lse, in, s, dweight};
    parallel_for(static_cast<int64_t>(groups.size()) * s.kv_heads, [&](int64_t n) {
      for (const QueryRun& run : groups[static_cast<size_t>(n / s.kv_heads)]) backward.run(run, n % s.kv_heads);
    });
    for (int64_t h = 0; h < s.kv_heads && g.dweight.defined(); ++h) {
      ArrayView<T>(g.dweight.data<T>(), g.dweight.numel()) +=
          ConstArrayView<T>(dweight.data() + h * g.dweight.numel(), g.dweight.numel());
    }
  });
}

// Lists that many queries read are taken list by list, since a product then has all of them; others by query. Forward
// and backward, with 4 heads of 64 features on one core with AVX-512: 520 queries in lists of 65 that read 8 blocks of
// 64 keys take 1.6 and 2.2 ms by list, and 5.7 and 9.0 ms by query; with a list of 4 blocks of 51 keys each and one
// head they take 2.0 and 3.4 ms by list, and 0.8 and 1.1 ms by query. Blocks of one key, 32 for a query, would take 9.0
// and 16.5 ms, for which knn_attention needs 1.9 and 2.4 ms: so it stays an operation of its own.
void listed_attention(const Tensor& out, const Tensor& lse, const Tensor& mass, const ops::ListedAttentionInputs& in) {
  const ListedSizes s(in);
  check_listed_attention(s, out, lse, mass, in);
  if (in.weight.defined()) return attend_by_list(out, lse, in, s);
  dispatch_both(
      in, [&](auto type, auto stored) { attend_by_query<decltype(type), decltype(stored)>(out, lse, mass, in, s); });
}

void listed_attention_backward(const ops::ListedAttentionGradients& g, const Tensor& dout, const Tensor& dlse,
                               const Tensor& out, const Tensor& lse, const ops::ListedAttentionInputs& in) {
  const ListedSizes s(in);
  check_listed_attention_backward(s, g, dout, dlse, out, lse, in);
  if (in.weight.defined()) return gradients_by_list(g, dout, lse, in, s);
  dispatch_both(in, [&](auto type, auto stored) {
    gradients_by_query<decltype(type), decltype(stored)>(g.dq, dout, dlse, out, lse, in, s);
  });
}

}  // namespace

void bind_listed_attention() {
  ops::listed_attention.bind(DeviceKind::cpu, listed_attention);
  ops::listed_attention_backward.bind(DeviceKind::cpu, listed_attention_backward);
}

}  // namespace quire::cpu
