#include "kernels/listed_attention.h"

#include <numeric>

#include "kernels/cpu/listed_backward.h"

namespace quire::cpu {

namespace {

// Returns how many queries a part has: so many that blocks have many readers, and so few that their lines stay in the
// second-level cache.
template <typename T>
int64_t queries_of_part(const ListedSizes& s) {
  constexpr int64_t kBytes = 512 << 10;
  const int64_t bytes = s.group() * 2 * (s.size + s.value_size) * static_cast<int64_t>(sizeof(T));
  return std::max<int64_t>(64, kBytes / std::max<int64_t>(1, bytes));
}

// Appends the parts of a row and key head.
void cut(std::vector<ListedPart>& to, const ListedSizes& s, int64_t row, int64_t kv_head, int64_t max_queries) {
  if (s.queries == 0) return;
  const int64_t some = ceil_div(s.queries, ceil_div(s.queries, max_queries));
  for (int64_t first = 0; first < s.queries; first += some) {
    to.push_back({row, kv_head, first, std::min(s.queries, first + some)});
  }
}

// Parts that give work to every thread. A query gets the same bits in any part.
template <typename T>
std::vector<std::vector<ListedPart>> small_parts(const ListedSizes& s) {
  const int64_t shares = ceil_div(ThreadPool::current().threads(), std::max<int64_t>(1, s.rows * s.kv_heads));
  std::vector<ListedPart> parts;
  for (int64_t part = 0; part < s.rows * s.kv_heads; ++part) {
    cut(parts, s, part / s.kv_heads, part % s.kv_heads, std::min(queries_of_part<T>(s), ceil_div(s.queries, shares)));
  }
  std::vector<std::vector<ListedPart>> alone;
  for (const ListedPart& part : parts) alone.push_back({part});
  return alone;
}

// Groups of parts that add to the same gradients of keys: those of rows that share stored blocks, directly or through
// other rows.
template <typename T>
std::vector<std::vector<ListedPart>> parts_by_keys(const ops::ListedAttentionInputs& in, const ListedSizes& s,
                                                   bool stored) {
  std::vector<int64_t> parent(static_cast<size_t>(s.rows));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int64_t row) {
    while (parent[static_cast<size_t>(row)] != row) row = parent[static_cast<size_t>(row)];
    return row;
  };
  std::vector<int64_t> reader(static_cast<size_t>(s.blocks), -1);
  const int32_t* const chosen = in.blocks.data<int32_t>();
  for (int64_t i = 0; i < in.blocks.numel() && stored; ++i) {
    if (chosen[i] < 0 || chosen[i] >= s.blocks) continue;
    int64_t& first = reader[static_cast<size_t>(chosen[i])];
    const int64_t own = root(i * s.rows / in.blocks.numel());
    if (first < 0) first = own;
    const int64_t other = root(first);
    parent[static_cast<size_t>(std::max(own, other))] = std::min(own, other);
  }
  std::vector<std::vector<ListedPart>> groups(static_cast<size_t>(s.rows * s.kv_heads));
  for (int64_t part = 0; part < s.rows * s.kv_heads; ++part) {
    const int64_t row = part / s.kv_heads, kv_head = part % s.kv_heads;
    cut(groups[static_cast<size_t>(root(row) * s.kv_heads + kv_head)], s, row, kv_head, queries_of_part<T>(s));
  }
  return groups;
}

// Calls body(part, task) for each part, those of a group one after the other.
template <typename T, typename Body>
void for_each_task(const ops::ListedAttentionInputs& in, const ListedSizes& s,
                   const std::vector<std::vector<ListedPart>>& groups, const Body& body) {
  parallel_for(static_cast<int64_t>(groups.size()), [&](int64_t n) {
    for (const ListedPart& part : groups[static_cast<size_t>(n)]) {
      ListedTask<T> task{in, s, part.kv_head, {}};
      add_reads(task.reads, in, s, part);
      sort_by_block(task.reads);
      body(part, task);
    }
  });
}

// The values of a tile by lane, and of queries and heads: those of a softmax over all that were read so far.
template <typename T>
struct ListedSoftmax {
  T *top, *sum;               // of the block
  T *all_top, *all_sum;       // of the blocks read so far
  T *keep, *factor, *log_of;  // the factors of their sum and of the block's; the log of what the block adds

  explicit ListedSoftmax(int64_t lanes, int slot) {
    T* next = scratch<T>(slot, 7 * lanes);
    for (T** each : {&top, &sum, &all_top, &all_sum, &keep, &factor, &log_of}) {
      *each = next;
      next += lanes;
    }
    std::fill_n(top, 7 * lanes, T{0});
  }

  // p [L, lanes]: the logits of regular keys become exponentials.
  void take(T* p, int64_t lanes, int64_t regular, bool softmax_one) const {
    const Vector<T> zero{};
    for (int64_t a = 0; a < lanes; a += kLanes<T>) {
      T* const x = p + a;
      Vector<T> largest = softmax_one ? zero : std::numeric_limits<T>::lowest() - zero;
      for (int64_t j = 0; j < regular; ++j) largest = larger<T>(largest, load_vector(x + j * lanes));
      Vector<T> total = softmax_one ? exponential<T>(-largest) : zero;
      for (int64_t j = 0; j < regular; ++j) {
        const Vector<T> value = exponential<T>(load_vector(x + j * lanes) - largest);
        store_vector(x + j * lanes, value);
        total += value;
      }
      store_vector(top + a, largest);
      store_vector(sum + a, total);
      const Eigen::Map<Eigen::Array<T, kLanes<T>, 1>> totals(sum + a), tops(top + a);
      Eigen::Map<Eigen::Array<T, kLanes<T>, 1>>(log_of + a) = tops + totals.log();
    }
  }
  // factor holds the weights; p [L, lanes] becomes what values are weighted by.
  void weigh(T* p, int64_t lanes, int64_t regular) const {
    for (int64_t a = 0; a < lanes; a += kLanes<T>) {
      const Vector<T> total = load_vector(sum + a);
      // The sum is 0 when all logits are -inf.
      const Vector<T> share = total == Vector<T>{} ? Vector<T>{} : load_vector(factor + a) / total;
      for (int64_t j = 0; j < regular; ++j) {
        store_vector(p + j * lanes + a, load_vector(p + j * lanes + a) * share);
      }
    }
  }
  // marks: the logits of landmarks, or null.
  void merge(int64_t lanes, const T* marks) const {
    const Vector<T> none = -std::numeric_limits<T>::infinity() - Vector<T>{}, one = T{1} - Vector<T>{};
    for (int64_t a = 0; a < lanes; a += kLanes<T>) {
      const Vector<T> own = load_vector(sum + a), before = load_vector(all_top + a);
      const auto empty = own == Vector<T>{};
      const Vector<T> gate = marks != nullptr ? load_vector(marks + a) : empty ? none : load_vector(top + a);
      const Vector<T> largest = larger<T>(before, gate);
      const Vector<T> share = exponential<T>(gate - largest), kept = exponential<T>(before - largest);
      store_vector(all_sum + a, load_vector(all_sum + a) * kept + share * (marks != nullptr ? one : own));
      store_vector(all_top + a, largest);
      store_vector(keep + a, kept);
      store_vector(factor + a, marks == nullptr ? share : empty ? Vector<T>{} : share / own);
      if (marks != nullptr) store_vector(log_of + a, gate);
    }
  }
};

// Tops and sums of the softmax over all that a query and head has read so far, by line.
template <typename T>
struct ListedSums {
  std::vector<T> top, sum;
};

template <typename T>
void attend(const Tensor& out, const Tensor& lse, const Tensor& mass, const ListedTask<T>& task, ListedSums<T>& sums) {
  const ops::ListedAttentionInputs& in = task.in;
  const ListedSizes& s = task.s;
  const int64_t max_lanes = task.max_lanes(), width = s.value_size;
  T* const packed = scratch<T>(0, max_lanes * s.size);
  T* const q = scratch<T>(1, max_lanes * s.size);
  T* const p = scratch<T>(2, max_lanes * s.length);
  T* const y = scratch<T>(3, max_lanes * width);
  const ListedSoftmax<T> softmax(max_lanes, 4);
  const bool weighted = in.weight.defined();
  const T* const weights = weighted ? in.weight.data<T>() : nullptr;
  T* const result = out.data<T>();
  T* const log_sums = weighted ? lse.data<T>() : mass.defined() ? mass.data<T>() : nullptr;
  task.for_each_tile([&](const Read* reads, int64_t count, int64_t lanes) {
    const int32_t block = reads->block;
    const int64_t queries = count * s.together(), length = task.length(block);
    const int64_t regular = length - (in.landmarks ? 1 : 0);
    task.turn(q, lanes, task.queries(packed, reads, count), queries, s.size, static_cast<T>(in.scale));
    block_product(p, lanes, task.keys(block, 5), q, lanes, length, lanes, s.size, false);
    softmax.take(p, lanes, regular, in.softmax_one);
    task.for_each_line(reads, count, [&](const auto& x) {
      const auto at = static_cast<size_t>(x.line);
      if (weighted) softmax.factor[x.lane] = weights[task.weight_of(x)];
      if (!weighted) softmax.all_top[x.lane] = sums.top[at], softmax.all_sum[x.lane] = sums.sum[at];
    });
    const Operand<T> values = task.values(block, 5);
    task.prefetch(result, reads, count, width);
    if (weighted) {
      softmax.weigh(p, lanes, regular);
      task.add_product(result, p, lanes, values, regular, reads, count, width, y);
      task.for_each_line(reads, count,
                         [&](const auto& x) { log_sums[x.by_head * s.chosen + x.n] = softmax.log_of[x.lane]; });
      return;
    }
    softmax.merge(lanes, in.landmarks ? p + regular * lanes : nullptr);
    block_product(y, width, Operand<T>{p, lanes, true}, values.data, values.stride, queries, width, regular, false);
    task.for_each_line(reads, count, [&](const auto& x) {
      ArrayView<T> total(result + x.line * width, width);
      const ConstArrayView<T> more(y + x.lane * width, width);
      const T factor = softmax.factor[x.lane];
      if (log_sums != nullptr) log_sums[x.by_head * s.chosen + x.n] = softmax.log_of[x.lane];
      const auto at = static_cast<size_t>(x.line);
      sums.top[at] = softmax.all_top[x.lane], sums.sum[at] = softmax.all_sum[x.lane];
      total *= softmax.keep[x.lane];
      // A block without a share adds nothing, even where its values are infinite.
      if (factor != T{0}) total += factor * more;
    });
  });
}

// One order of work serves all steps: by block. All queries of a task that read a block form one product with its keys,
// wherever they stand. 4 rows of 512 queries that each choose 3 of 40 blocks of 64 keys, 4 heads of 64 features, take
// 15 and 18 ms forward and backward on one core with AVX-512; read query by query they took 22 and 28 ms. A single
// query with 4 heads and 3 blocks takes 15 and 23 us, and took 5 and 7 us.
void listed_attention(const Tensor& out, const Tensor& lse, const Tensor& mass, const ops::ListedAttentionInputs& in) {
  const ListedSizes s(in);
  check_listed_attention(s, out, lse, mass, in);
  const bool weighted = in.weight.defined();
  out.zero();
  if (weighted) lse.zero();
  dispatch("listed_attention", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    constexpr T kNone = -std::numeric_limits<T>::infinity();
    const auto lines = static_cast<size_t>(weighted ? 0 : s.rows * s.queries * s.heads);
    ListedSums<T> sums{std::vector<T>(lines, std::numeric_limits<T>::lowest()), std::vector<T>(lines, T{0})};
    if (mass.defined()) ArrayView<T>(mass.data<T>(), mass.numel()) = kNone;
    for_each_task<T>(in, s, small_parts<T>(s), [&](const ListedPart& part, const auto& task) {
      attend(out, lse, mass, task, sums);
      if (weighted) return;
      part.for_each_line(s, [&](int64_t line) {
        const T sum = sums.sum[static_cast<size_t>(line)];
        if (sum != T{0}) ArrayView<T>(out.data<T>() + line * s.value_size, s.value_size) *= T{1} / sum;
        lse.data<T>()[task.by_head(line)] = sum == T{0} ? kNone : sums.top[static_cast<size_t>(line)] + std::log(sum);
      });
    });
  });
}

void listed_attention_backward(const ops::ListedAttentionGradients& g, const Tensor& dout, const Tensor& dlse,
                               const Tensor& out, const Tensor& lse, const ops::ListedAttentionInputs& in) {
  const ListedSizes s(in);
  check_listed_attention_backward(s, g, dout, dlse, out, lse, in);
  const bool stored_keys = g.dkeys.defined() || g.dvalues.defined();
  const bool own_keys = g.down_keys.defined() || g.down_values.defined();
  const bool of_lists = g.dweight.defined() && g.dweight.rank() == 3;
  for (const Tensor* gradient : {&g.dq, &g.dkeys, &g.dvalues, &g.dweight, &g.down_keys, &g.down_values}) {
    if (gradient->defined()) gradient->zero();
  }
  dispatch("listed_attention", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    std::vector<T> by_kv_head(static_cast<size_t>(of_lists ? s.kv_heads * g.dweight.numel() : 0));
    const bool sums = stored_keys || own_keys || of_lists;  // over queries
    for_each_task<T>(in, s, sums ? parts_by_keys<T>(in, s, stored_keys) : small_parts<T>(s),
                     [&](const ListedPart& part, const auto& task) {
                       T* const dweight = of_lists              ? by_kv_head.data() + task.kv_head * g.dweight.numel()
                                          : g.dweight.defined() ? g.dweight.template data<T>()
                                                                : nullptr;
                       ListedBackward<T>{g, dout, dlse, out, lse, task, dweight}.run(part);
                     });
    for (int64_t h = 0; h < s.kv_heads && of_lists; ++h) {
      ArrayView<T>(g.dweight.data<T>(), g.dweight.numel()) +=
          ConstArrayView<T>(by_kv_head.data() + h * g.dweight.numel(), g.dweight.numel());
    }
  });
}

}  // namespace

void bind_listed_attention() {
  ops::listed_attention.bind(DeviceKind::cpu, listed_attention);
  ops::listed_attention_backward.bind(DeviceKind::cpu, listed_attention_backward);
}

}  // namespace quire::cpu
