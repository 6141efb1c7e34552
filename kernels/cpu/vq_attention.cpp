// Attention to the caches of codewords. Logits are stored transposed, codewords by queries, as in attention_blocks.h.
#include <limits>

#include "kernels/cpu/online_softmax.h"
#include "kernels/vq_sizes.h"

namespace quire::cpu {

namespace {

constexpr int64_t kQueryBlock = 64;
constexpr int64_t kCodeBlock = 128;
// The blocks of all rows are divided among this many tasks per key head, each with separate sums of the gradients that
// all rows share (u).
constexpr int64_t kBlockParts = 16;

// Queries [first, first + count) of one row and head, all of one block.
template <typename T>
struct Queries {
  int64_t row, head, first, count, lanes;  // lanes: count in whole vectors
  T* content;                              // q + u  [count, D]
  T* by_feature;                           // the same, [D, kQueryBlock]
};

template <typename T>
class CodeBlocks {
 public:
  static constexpr int64_t kWidth = kLanes<T>;

  CodeBlocks(const ops::CodeAttentionInputs& in, const CodeAttentionSizes& s) : in_(in), s_(s) {}

  int64_t query_stride() const { return s_.heads * s_.size; }
  int64_t value_stride() const { return s_.heads * s_.value_size; }
  int64_t query_at(const Queries<T>& q) const { return (q.row * s_.queries + q.first) * s_.heads + q.head; }
  int64_t lse_at(const Queries<T>& q) const { return (q.row * s_.heads + q.head) * s_.queries + q.first; }
  int64_t cache_at(int64_t row, int64_t block, int64_t kv_head) const {
    return ((row * s_.caches + block) * s_.kv_heads + kv_head) * s_.codes;
  }
  const T* codebook(int64_t kv_head) const { return in_.codebook.template data<T>() + kv_head * s_.codes * s_.size; }
  const T* counts(int64_t cache) const { return in_.counts.template data<T>() + cache; }
  // Return positions of a cache, which is given by its first codeword among those of all caches; means exist for all
  // caches but the last one of each row.
  int64_t mean_at(int64_t cache, int64_t row) const { return (cache - row * s_.kv_heads * s_.codes) * s_.value_size; }
  const T* means(int64_t cache, int64_t row) const { return in_.means.template data<T>() + mean_at(cache, row); }

  // to [size, kQueryBlock] = transposed from [count, size]; lanes beyond the queries are zero.
  void by_feature(T* to, const T* from, int64_t stride, const Queries<T>& q, int64_t size) const {
    for (int64_t a = 0; a < q.lanes; a += kWidth) {
      transpose_rows(to + a, kQueryBlock, from + a * stride, stride, std::min(kWidth, q.count - a), size);
    }
  }

  Queries<T> load(int64_t row, int64_t head, int64_t first, int64_t end) const {
    const int64_t count = std::min(kQueryBlock, end - first);
    Queries<T> q{row,
                 head,
                 first,
                 count,
                 ceil_div(count, kWidth) * kWidth,
                 scratch<T>(0, kQueryBlock * s_.size),
                 scratch<T>(1, kQueryBlock * s_.size)};
    const T* from = in_.q.template data<T>() + query_at(q) * s_.size;
    for (int64_t a = 0; a < count; ++a) {
      ArrayView<T> to(q.content + a * s_.size, s_.size);
      to = ConstArrayView<T>(from + a * query_stride(), s_.size);
      if (in_.u.defined()) to += ConstArrayView<T>(in_.u.template data<T>() + head * s_.size, s_.size);
    }
    by_feature(q.by_feature, q.content, s_.size, q, s_.size);
    return q;
  }

  // Returns whether any of the codewords [code, code + count) of a cache is in use.
  bool used(int64_t cache, int64_t code, int64_t count) const {
    const T* n = counts(cache) + code;
    return std::any_of(n, n + count, [](T value) { return value != T{0}; });
  }

  // Returns logits [count, kQueryBlock] of the codewords [code, code + count); -inf for codewords that are not in use.
  T* logits(const Queries<T>& q, int64_t kv_head, int64_t cache, int64_t code, int64_t count) const {
    T* const to = scratch<T>(2, kCodeBlock * kQueryBlock);
    block_product(to, kQueryBlock, Operand<T>{codebook(kv_head) + code * s_.size, s_.size}, q.by_feature, kQueryBlock,
                  count, q.lanes, s_.size, false);
    for (int64_t j = 0; j < count; ++j) {
      const T n = counts(cache)[code + j];
      T* const row = to + j * kQueryBlock;
      if (n == T{0}) {
        std::fill(row, row + q.lanes, -std::numeric_limits<T>::infinity());
        continue;
      }
      const T log = std::log(n);
      for (int64_t a = 0; a < q.lanes; a += kWidth) store_vector(row + a, load_vector(row + a) + log);
    }
    return to;
  }

 private:
  const ops::CodeAttentionInputs& in_;
  const CodeAttentionSizes& s_;
};

template <typename T>
void forward_tile(const Tensor& out, const Tensor& lse, const CodeBlocks<T>& blocks, const CodeAttentionSizes& s,
                  int64_t row, int64_t head, int64_t first, int64_t end) {
  const int64_t kv_head = head / (s.heads / s.kv_heads);
  const int64_t cache = blocks.cache_at(row, first / s.block, kv_head);
  if (!blocks.used(cache, 0, s.codes)) return;
  const Queries<T> q = blocks.load(row, head, first, end);
  T* const to = out.data<T>() + blocks.query_at(q) * s.value_size;
  T* const log_sum = lse.data<T>() + blocks.lse_at(q);
  T* const sums = scratch<T>(3, kQueryBlock);
  T* const tops = scratch<T>(4, kQueryBlock);
  const OnlineSoftmax<T> softmax{sums, tops, scratch<T>(5, kQueryBlock)};
  T* const total = scratch<T>(6, kQueryBlock * s.value_size);
  std::fill(sums, sums + kQueryBlock, T{0});
  std::fill(tops, tops + kQueryBlock, std::numeric_limits<T>::lowest());
  for (int64_t a = 0; a < q.count; ++a) {
    if (log_sum[a] != -std::numeric_limits<T>::infinity()) {
      tops[a] = log_sum[a];
      sums[a] = T{1};
    }
    ArrayView<T>(total + a * s.value_size, s.value_size) =
        ConstArrayView<T>(to + a * blocks.value_stride(), s.value_size);
  }
  for (int64_t code = 0; code < s.codes; code += kCodeBlock) {
    const int64_t count = std::min(kCodeBlock, s.codes - code);
    if (!blocks.used(cache, code, count)) continue;
    T* const p = blocks.logits(q, kv_head, cache, code, count);
    softmax.take(p, kQueryBlock, count, q.lanes);
    softmax.correct(total, q.count, s.value_size);
    block_product(total, s.value_size, Operand<T>{p, kQueryBlock, true}, blocks.means(cache, row) + code * s.value_size,
                  s.value_size, q.count, s.value_size, count, true);
  }
  for (int64_t a = 0; a < q.count; ++a) {
    ArrayView<T>(to + a * blocks.value_stride(), s.value_size) =
        ConstArrayView<T>(total + a * s.value_size, s.value_size) * (T{1} / sums[a]);
    log_sum[a] = tops[a] + std::log(sums[a]);
  }
}

void code_attention(const Tensor& out, const Tensor& lse, const ops::CodeAttentionInputs& in) {
  const CodeAttentionSizes s(in);
  check_code_attention(s, out, lse, in);
  dispatch("code_attention", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    const CodeBlocks<T> blocks(in, s);
    const int64_t count = ceil_div(s.queries, s.block);
    const int64_t tiles = ceil_div(std::min(s.block, s.queries), kQueryBlock);  // per block
    parallel_for(s.rows * count * s.heads * tiles, [&](int64_t tile) {
      const int64_t head = tile / tiles % s.heads;
      const int64_t block = tile / (tiles * s.heads) % count;
      const int64_t first = block * s.block + tile % tiles * kQueryBlock;
      const int64_t end = std::min(s.queries, (block + 1) * s.block);
      if (first < end) forward_tile(out, lse, blocks, s, tile / (tiles * s.heads * count), head, first, end);
    });
  });
}

template <typename T>
struct CodeBackward {
  const Tensor& dq;
  const Tensor& du;  // [tasks, D], or undefined
  const Tensor& dmeans;
  const Tensor& dout;
  const Tensor& delta;
  const Tensor& lse;
  const CodeBlocks<T>& blocks;
  const CodeAttentionSizes& s;

  // Adds the contribution of one block of queries to dmeans of the cache.
  void queries(int64_t part, int64_t row, int64_t head, int64_t first, int64_t end, int64_t cache) const {
    const int64_t kv_head = head / (s.heads / s.kv_heads);
    const Queries<T> q = blocks.load(row, head, first, end);
    const T* const dy = dout.data<T>() + blocks.query_at(q) * s.value_size;
    T* const given = scratch<T>(3, kQueryBlock);  // delta
    T* const log_sum = scratch<T>(4, kQueryBlock);
    std::fill(given, given + kQueryBlock, T{0});
    // makes lanes beyond the queries zero
    std::fill(log_sum, log_sum + kQueryBlock, std::numeric_limits<T>::infinity());
    std::copy_n(delta.data<T>() + blocks.lse_at(q), q.count, given);
    std::copy_n(lse.data<T>() + blocks.lse_at(q), q.count, log_sum);
    T* const dy_by_feature = scratch<T>(5, kQueryBlock * s.value_size);
    blocks.by_feature(dy_by_feature, dy, blocks.value_stride(), q, s.value_size);
    T* const dcontent = scratch<T>(6, kQueryBlock * s.size);
    std::fill(dcontent, dcontent + q.count * s.size, T{0});
    T* const ds = scratch<T>(7, kCodeBlock * kQueryBlock);
    for (int64_t code = 0; code < s.codes; code += kCodeBlock) {
      const int64_t count = std::min(kCodeBlock, s.codes - code);
      if (!blocks.used(cache, code, count)) continue;
      T* const p = blocks.logits(q, kv_head, cache, code, count);
      block_product(ds, kQueryBlock, Operand<T>{blocks.means(cache, row) + code * s.value_size, s.value_size},
                    dy_by_feature, kQueryBlock, count, q.lanes, s.value_size, false);
      for (int64_t a = 0; a < q.lanes; a += kLanes<T>) {
        const Vector<T> l = load_vector(log_sum + a);
        const Vector<T> d = load_vector(given + a);
        for (int64_t j = 0; j < count; ++j) {
          T* const x = p + j * kQueryBlock + a;
          T* const dx = ds + j * kQueryBlock + a;
          const Vector<T> probability = exponential<T>(load_vector(x) - l);
          store_vector(x, probability);
          store_vector(dx, probability * (load_vector(dx) - d));
        }
      }
      if (dmeans.defined()) {
        block_product(dmeans.data<T>() + blocks.mean_at(cache + code, row), s.value_size, Operand<T>{p, kQueryBlock},
                      dy, blocks.value_stride(), count, s.value_size, q.count, true);
      }
      block_product(dcontent, s.size, Operand<T>{ds, kQueryBlock, true}, blocks.codebook(kv_head) + code * s.size,
                    s.size, q.count, s.size, count, true);
    }
    for (int64_t a = 0; a < q.count; ++a) {
      const ConstArrayView<T> term(dcontent + a * s.size, s.size);
      ArrayView<T>(dq.data<T>() + blocks.query_at(q) * s.size + a * blocks.query_stride(), s.size) += term;
      if (du.defined()) ArrayView<T>(du.data<T>() + (part * s.heads + head) * s.size, s.size) += term;
    }
  }

  void block(int64_t part, int64_t row, int64_t index, int64_t kv_head) const {
    if (index + 1 == s.caches) return;  // the last cache is not read
    const int64_t cache = blocks.cache_at(row, index, kv_head);
    if (dmeans.defined()) {
      T* const to = dmeans.data<T>() + blocks.mean_at(cache, row);
      std::fill(to, to + s.codes * s.value_size, T{0});
    }
    if (index * s.block >= s.queries || !blocks.used(cache, 0, s.codes)) return;
    const int64_t per_kv = s.heads / s.kv_heads;
    const int64_t end = std::min(s.queries, (index + 1) * s.block);
    for (int64_t head = kv_head * per_kv; head < (kv_head + 1) * per_kv; ++head) {
      for (int64_t first = index * s.block; first < end; first += kQueryBlock) {
        queries(part, row, head, first, end, cache);
      }
    }
  }
};

void code_attention_backward(const Tensor& dq, const Tensor& du, const Tensor& dmeans, const Tensor& dout,
                             const Tensor& delta, const Tensor& lse, const ops::CodeAttentionInputs& in) {
  const CodeAttentionSizes s(in);
  check_code_attention_backward(s, dq, du, dmeans, dout, delta, lse, in);
  const int64_t units = s.rows * s.caches;
  const int64_t parts = std::min(units, kBlockParts);
  const Tensor du_parts = du.defined() ? Tensor::zeros({parts, s.heads, s.size}, du.dtype()) : Tensor();
  dispatch("code_attention_backward", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    const CodeBlocks<T> blocks(in, s);
    const CodeBackward<T> backward{dq, du_parts, dmeans, dout, delta, lse, blocks, s};
    parallel_for(parts * s.kv_heads, [&](int64_t task) {
      const int64_t part = task / s.kv_heads;
      for (int64_t unit = units * part / parts; unit < units * (part + 1) / parts; ++unit) {
        backward.block(part, unit / s.caches, unit % s.caches, task % s.kv_heads);
      }
    });
    if (!du.defined()) return;
    ArrayView<T> total(du.data<T>(), du.numel());
    for (int64_t part = 0; part < parts; ++part) {
      total += ConstArrayView<T>(du_parts.data<T>() + part * du.numel(), du.numel());
    }
  });
}

}  // namespace

void bind_vq_attention() {
  ops::code_attention.bind(DeviceKind::cpu, code_attention);
  ops::code_attention_backward.bind(DeviceKind::cpu, code_attention_backward);
}

}  // namespace quire::cpu
