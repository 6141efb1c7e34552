#include "tests/support/composed_attention.h"

#include <algorithm>
#include <functional>
#include <span>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/pointwise.h"
#include "autograd/functions/rows.h"

namespace quire::test {

namespace {

Tensor integers(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

// [R, S, Hk, D] as [R, H, S, D]: each key head as often as query heads read it.
Variable of_query_heads(Tape& tape, const Variable& x, int64_t heads) {
  const int64_t rows = x.dim(0), keys = x.dim(1), own = x.dim(2), size = x.dim(3);
  const Variable repeated =
      broadcast(tape, reshape(tape, x, {rows, keys, own, 1, size}), {rows, keys, own, heads / own, size});
  return permute(tape, reshape(tape, repeated, {rows, keys, heads, size}), {0, 2, 1, 3});
}

// The ring in order, oldest entry first, and the subsequence behind it.
Variable in_order(Tape& tape, const Variable& ring, const Variable& x, const Tensor& head) {
  if (!ring.defined()) return x;
  const int64_t rows = ring.dim(0), slots = ring.dim(1), heads = ring.dim(2), size = ring.dim(3);
  std::vector<int32_t> order;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < slots; ++c) order.push_back(static_cast<int32_t>((head.data<int32_t>()[r] + c) % slots));
  }
  const Variable sorted =
      gather_rows(tape, reshape(tape, ring, {rows, slots, heads * size}), integers(order, {rows, slots}));
  return concatenate(tape, std::vector{reshape(tape, sorted, {rows, slots, heads, size}), x}, 1);
}

struct Geometry {
  int64_t rows, queries, heads, slots, keys;
  explicit Geometry(const AttentionVariables& x)
      : rows(x.q.dim(0)),
        queries(x.q.dim(1)),
        heads(x.q.dim(2)),
        slots(x.cache_k.defined() ? x.cache_k.dim(1) : 0),
        keys(slots + queries) {}
};

// Distances that a table of N entries knows, as places [R, H, T, S] in a matrix of N columns and a row for each
// (row, head, query), or for each head; -1 where there is no entry.
Tensor places_of(const Geometry& g, int64_t entries, bool per_query) {
  std::vector<int32_t> places;
  for (int64_t line = 0; line < g.rows * g.heads * g.queries; ++line) {
    const int64_t base = (per_query ? line : line / g.queries % g.heads) * entries;
    for (int64_t c = 0; c < g.keys; ++c) {
      const int64_t distance = line % g.queries - (c - g.slots);
      const bool known = distance >= 0 && distance < entries;
      places.push_back(static_cast<int32_t>(known ? base + entries - 1 - distance : -1));
    }
  }
  return integers(places, {g.rows, g.heads, g.queries, g.keys});
}

// table [.., N] at these places: [R, H, T, S].
Variable at_places(Tape& tape, const Variable& table, const Tensor& places) {
  const Variable found = gather_rows(tape, reshape(tape, table, {table.shape().numel(), 1}), places);
  return reshape(tape, found, places.shape());
}

// mask / (1 - p) of the counter that kernels/attention.h documents: [R, T, H, S].
Tensor kept_by_dropout(const Geometry& g, const ops::AttentionInputs& in) {
  std::vector<double> kept;
  for (int64_t line = 0; line < g.rows * g.queries * g.heads; ++line) {
    const int64_t h = line % g.heads, i = line / g.heads % g.queries, row = line / g.heads / g.queries;
    for (int64_t c = 0; c < g.keys; ++c) {
      const int64_t behind = in.last_visible.defined() ? g.queries : 0;  // distances down to 1 - T
      const auto element = static_cast<uint32_t>(h * (g.keys + behind) + behind + i - (c - g.slots));
      const auto bits =
          philox(in.key, in.scope, static_cast<uint32_t>(in.first_row + row), static_cast<uint32_t>(i), element / 4);
      kept.push_back(bits[element % 4] * 0x1p-32 >= in.dropout ? 1 / (1 - in.dropout) : 0);
    }
  }
  return Tensor::from(kept, {g.rows, g.queries, g.heads, g.keys});
}

}  // namespace

ComposedKeys composed_keys(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& in) {
  const Geometry g(x);
  const Variable keys = of_query_heads(tape, in_order(tape, x.cache_k, x.k, in.cache_head), g.heads);
  const Variable values = of_query_heads(tape, in_order(tape, x.cache_v, x.v, in.cache_head), g.heads);
  const Variable content = x.u.defined() ? add(tape, x.q, x.u) : x.q;
  Variable logits = matmul(tape, permute(tape, content, {0, 2, 1, 3}), keys, {.transpose_b = true});
  if (x.r.defined()) {
    const Variable transposed = permute(tape, add(tape, x.q, x.v_bias), {0, 2, 1, 3});
    const Variable by_entry = matmul(tape, transposed, permute(tape, x.r, {1, 0, 2}), {.transpose_b = true});
    logits = add(tape, logits, at_places(tape, by_entry, places_of(g, x.r.dim(0), true)));
  }
  logits = scale(tape, logits, in.scale);
  if (x.bias.defined()) logits = add(tape, logits, at_places(tape, x.bias, places_of(g, x.bias.dim(1), false)));

  std::vector<uint8_t> mask;
  for (int64_t line = 0; line < g.rows * g.queries; ++line) {
    const int64_t query = line % g.queries;
    const int64_t last =
        in.last_visible.defined() ? in.last_visible.data<int32_t>()[line] : query - (in.attend_self ? 0 : 1);
    for (int64_t c = 0; c < g.keys; ++c) {
      const int64_t position = c - g.slots;
      mask.push_back(position >= in.first_visible.data<int32_t>()[line] && position <= last ? 1 : 0);
    }
  }
  return {permute(tape, logits, {0, 2, 1, 3}), values, Tensor::from(mask, {g.rows, g.queries, 1, g.keys})};
}

Variable weighted_values(Tape& tape, const Variable& weights, const Variable& values) {
  return permute(tape, matmul(tape, permute(tape, weights, {0, 2, 1, 3}), values), {0, 2, 1, 3});
}

namespace {

Variable dropped(Tape& tape, const Variable& weights, const AttentionVariables& x, const ops::AttentionInputs& in) {
  if (in.dropout == 0) return weights;
  return multiply(tape, weights, Variable::constant(kept_by_dropout(Geometry(x), in)));
}

}  // namespace

Variable composed_attention(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& in, Variable* lse) {
  const ComposedKeys keys = composed_keys(tape, x, in);
  if (lse != nullptr) *lse = permute(tape, log_sum_exp(tape, keys.logits, keys.mask), {0, 2, 1});
  return weighted_values(tape, dropped(tape, softmax(tape, keys.logits, keys.mask), x, in), keys.values);
}

std::vector<Variable> composed_by_lse(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& in,
                                      const Tensor& lse) {
  const ComposedKeys keys = composed_keys(tape, x, in);
  const Tensor known = clone(lse);  // of queries that see nothing it is -inf
  for (double& sum : std::span(known.data<double>(), static_cast<size_t>(known.numel()))) sum = std::max(sum, -1e9);
  const Variable by_query =
      permute(tape, reshape(tape, Variable::constant(known), {lse.dim(0), lse.dim(1), lse.dim(2), 1}), {0, 2, 1, 3});
  const Variable logits = select(tape, keys.mask, subtract(tape, keys.logits, by_query), {});
  const Variable weights = select(tape, keys.mask, exp(tape, logits), {});
  return {weighted_values(tape, dropped(tape, weights, x, in), keys.values),
          permute(tape, sum(tape, weights, -1), {0, 2, 1})};
}

Tensor delta_of(const Tensor& dout, const Tensor& out) {
  Tape tape(false);
  const Variable products = multiply(tape, Variable::constant(dout), Variable::constant(out));
  return permute(tape, sum(tape, products, -1), {0, 2, 1}).value();
}

namespace {

// Logits [R, T, H, K] of the retrieved entries, their values [R, T, H, K, Dv], and which of them exist.
struct Retrieved {
  Variable logits, values;
  Tensor mask;
};

Retrieved retrieved(Tape& tape, const Variable& q, const Tensor& index, const ops::KnnMemory& memory) {
  const int64_t slots = memory.keys.dim(1), own = memory.keys.dim(2);
  const int64_t queries = q.dim(1), heads = q.dim(2), k = index.dim(3);
  std::vector<int32_t> rows;
  std::vector<uint8_t> mask;
  for (int64_t i = 0; i < index.numel(); ++i) {
    const int32_t entry = index.data<int32_t>()[i];
    const int64_t h = i / k % heads, r = i / k / heads / queries;
    const int64_t slot =
        (memory.head.data<int32_t>()[r] - memory.length.data<int32_t>()[r] + std::max(entry, 0) + 2 * slots) % slots;
    rows.push_back(static_cast<int32_t>(entry < 0 ? -1 : (r * slots + slot) * own + h / (heads / own)));
    mask.push_back(entry < 0 ? 0 : 1);
  }
  const auto entries = [&](const Tensor& stored) {
    const Tensor table = stored.reshape({stored.numel() / stored.dim(3), stored.dim(3)});
    return gather_rows(tape, Variable::constant(table), integers(rows, index.shape()));
  };
  const Variable wide_q = reshape(tape, q, {q.dim(0), queries, heads, 1, q.dim(3)});
  return {sum(tape, multiply(tape, wide_q, entries(memory.keys)), -1), entries(memory.values),
          Tensor::from(mask, index.shape())};
}

// sum over K of weights [R, T, H, K] times values [R, T, H, K, Dv]
Variable weighted_entries(Tape& tape, const Variable& weights, const Variable& values) {
  const Shape& shape = weights.shape();
  return sum(tape, multiply(tape, reshape(tape, weights, {shape[0], shape[1], shape[2], shape[3], 1}), values), 3);
}

}  // namespace

Variable composed_knn_attention(Tape& tape, const Variable& q, const Tensor& index, const ops::KnnMemory& memory) {
  const Retrieved entries = retrieved(tape, q, index, memory);
  return weighted_entries(tape, softmax(tape, entries.logits, entries.mask), entries.values);
}

Variable composed_joint_attention(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& in,
                                  const Variable& q, const Tensor& index, const ops::KnnMemory& memory) {
  const ComposedKeys local = composed_keys(tape, x, in);
  const Retrieved entries = retrieved(tape, q, index, memory);
  const Shape& shape = local.logits.shape();
  const int64_t keys = shape[3], all = keys + index.dim(3);
  // Both masks side by side.
  std::vector<uint8_t> mask;
  for (int64_t line = 0; line < shape[0] * shape[1] * shape[2]; ++line) {
    const uint8_t* const of_local = local.mask.data<uint8_t>() + line / shape[2] * keys;
    const uint8_t* const of_entries = entries.mask.data<uint8_t>() + line * index.dim(3);
    mask.insert(mask.end(), of_local, of_local + keys);
    mask.insert(mask.end(), of_entries, of_entries + index.dim(3));
  }
  const Variable weights = softmax(tape, concatenate(tape, std::vector{local.logits, entries.logits}, 3),
                                   Tensor::from(mask, {shape[0], shape[1], shape[2], all}));
  return add(tape, weighted_values(tape, slice(tape, weights, 3, 0, keys), local.values),
             weighted_entries(tape, slice(tape, weights, 3, keys, all), entries.values));
}

namespace {

// The blocks of the rows, all on the host.
struct Blocks {
  int64_t rows, queries, keys, heads;
  const ops::BlockAttentionInputs& in;

  int32_t number(int64_t row, int64_t key) const { return in.block.data<int32_t>()[row * keys + key]; }
  bool is_landmark(int64_t row, int64_t key) const {
    return in.landmark.defined() && in.landmark.data<uint8_t>()[row * keys + key] != 0;
  }
  int64_t place(int64_t query) const { return keys - queries + query; }
  int32_t own(int64_t row, int64_t query) const { return number(row, place(query)); }
  int32_t first(int64_t row, int64_t query) const { return in.first.data<int32_t>()[row * queries + query]; }

  bool in_own(int64_t row, int64_t query, int64_t key) const {
    return in.own_block && !is_landmark(row, key) && number(row, key) == own(row, query) &&
           own(row, query) >= first(row, query) && own(row, query) >= 0 && key <= place(query);
  }
  bool in_earlier(int64_t row, int64_t query, int64_t key) const {
    return number(row, key) >= std::max(first(row, query), 0) && number(row, key) < own(row, query) &&
           !is_closed(row, number(row, key));
  }
  bool is_closed(int64_t row, int32_t block) const {
    for (int64_t key = 0; key < keys && in.landmark.defined(); ++key) {
      if (number(row, key) == block && in.landmark.data<uint8_t>()[row * keys + key] == 2) return true;
    }
    return false;
  }
  bool is_empty(int64_t row, int32_t block) const {
    for (int64_t key = 0; key < keys; ++key) {
      if (number(row, key) == block && !is_landmark(row, key)) return false;
    }
    return true;
  }
  // u8 [R, T, H, S]
  Tensor mask(const std::function<bool(int64_t row, int64_t query, int64_t head, int64_t key)>& sees) const {
    std::vector<uint8_t> mask;
    for (int64_t i = 0; i < rows * queries * heads * keys; ++i) {
      const int64_t line = i / keys;
      mask.push_back(sees(line / heads / queries, line / heads % queries, line % heads, i % keys) ? 1 : 0);
    }
    return Tensor::from(mask, {rows, queries, heads, keys});
  }
  // mask / (1 - p) of the counter that kernels/block_attention.h documents: [R, T, H, 1].
  Tensor kept(int32_t block) const {
    std::vector<double> kept;
    for (int64_t line = 0; line < rows * queries * heads; ++line) {
      const auto element = static_cast<uint32_t>(line % heads * keys + block);
      const auto bits = philox(in.key, in.scope, static_cast<uint32_t>(in.first_row + line / heads / queries),
                               static_cast<uint32_t>(line / heads % queries), element / 4);
      kept.push_back(in.dropout == 0 ? 1 : (bits[element % 4] * 0x1p-32 >= in.dropout ? 1 / (1 - in.dropout) : 0));
    }
    return Tensor::from(kept, {rows, queries, heads, 1});
  }
};

}  // namespace

BlockAttention composed_block_attention(Tape& tape, const Variable& q, const Variable& k, const Variable& v,
                                        const ops::BlockAttentionInputs& in) {
  const Blocks blocks{q.dim(0), q.dim(1), k.dim(1), q.dim(2), in};
  const Variable keys = of_query_heads(tape, k, q.dim(2));
  const Variable values = of_query_heads(tape, v, q.dim(2));
  Variable logits = matmul(tape, permute(tape, q, {0, 2, 1, 3}), keys, {.transpose_b = true});
  logits = permute(tape, scale(tape, logits, in.scale), {0, 2, 1, 3});  // [R, T, H, S]
  const bool marked = in.landmark.defined() && in.grouped;
  const Tensor gates = blocks.mask([&](int64_t row, int64_t query, int64_t, int64_t key) {
    if (blocks.in_own(row, query, key)) return true;
    if (!blocks.in_earlier(row, query, key)) return false;
    if (!marked) return !blocks.is_landmark(row, key);
    return blocks.is_landmark(row, key) && (in.empty_blocks_count || !blocks.is_empty(row, blocks.number(row, key)));
  });
  const Variable lse = permute(tape, log_sum_exp(tape, logits, gates), {0, 2, 1});
  Variable weights = softmax(tape, logits, gates);
  if (marked) {
    const Variable shares = weights;
    weights = select(tape, blocks.mask([&](int64_t row, int64_t query, int64_t, int64_t key) {
      return blocks.in_own(row, query, key);
    }),
                     shares, {});
    int32_t max_block = 0;
    for (int64_t i = 0; i < in.block.numel(); ++i) max_block = std::max(max_block, in.block.data<int32_t>()[i]);
    for (int32_t block = 0; block <= max_block; ++block) {
      const auto of_block = [&](bool landmarks) {
        return blocks.mask([&, landmarks](int64_t row, int64_t query, int64_t, int64_t key) {
          return blocks.number(row, key) == block && blocks.in_earlier(row, query, key) &&
                 blocks.is_landmark(row, key) == landmarks;
        });
      };
      Variable share = sum(tape, select(tape, of_block(true), shares, {}), -1, true);
      share = multiply(tape, share, Variable::constant(blocks.kept(block)));
      weights = add(tape, weights, multiply(tape, softmax(tape, logits, of_block(false)), share));
    }
  }
  return {weighted_values(tape, weights, values), lse};
}

std::vector<Variable> both(Tape& tape, const BlockAttention& result) {
  return {result.out, exp(tape, scale(tape, result.lse, 0.5))};
}

}  // namespace quire::test
