#include "layers/mixers/infini_memory.h"

#include <algorithm>
#include <span>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "autograd/functions/terms.h"
#include "kernels/axis.h"
#include "kernels/elementwise.h"
#include "kernels/pointwise.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// The largest feature of a query is at least 1 / D^4, and normalisers are sums over all keys that were written: a
// smaller product is that of an empty memory, whose matrix is zero.
constexpr double kTiny = 1e-30;

Variable number(double value, const Variable& like) {
  return Variable::constant(tensor_of({value}, {1}, like.value().dtype(), like.value().device()));
}

// phi(x) = max(x, 0) + exp(min(x, 0)) as one record, whose derivative is the exponential. With `scaled`, a line [.., D]
// whose features are all small is multiplied by exp(-shift), a constant: what a query reads is a ratio, which it does
// not change. shift = min(0, 4 log sum exp(min(x, 0) / 4)) lies between the largest entry and 4 log D above it.
Variable features(Tape& t, const Variable& x, bool scaled) {
  const Tensor positive = Tensor::empty_like(x.value()), exponential = Tensor::empty_like(positive);
  ops::activation(positive, x.value(), ops::Activation::relu);
  ops::add(exponential, x.value(), positive, 1, -1);
  if (scaled) {
    Tape idle(false);
    const Variable negative = Variable::constant(exponential);
    const Variable sums = sum(idle, exp(idle, scale(idle, negative, 0.25)), -1, true);
    const Variable shift = scale(idle, log(idle, maximum(idle, sums, number(kTiny, sums))), 4);
    const Tensor above = maximum(idle, scale(idle, shift, -1), number(0, shift)).value();
    ops::binary(exponential, exponential, above.broadcast(exponential.shape()), ops::Binary::sum);
  }
  ops::unary(exponential, exponential, ops::Unary::exp);
  ops::add(positive, positive, exponential, 1, 1);
  return t.result("features", positive, {&x}, [x, exponential](const Tensor& dy) {
    const Tensor dx = Tensor::empty_like(dy);
    ops::multiply(dx, dy, exponential);
    add_to_gradient(x, dx);
  });
}

// x [.., N, Dv] divided by sums [.., N, 1] as one record: its backward pass needs no products that are summed over
// repeated values.
Variable divided(Tape& t, const Variable& x, const Variable& sums) {
  const Tensor y = Tensor::empty_like(x.value());
  ops::binary(y, x.value(), sums.value().broadcast(x.shape()), ops::Binary::quotient);
  return t.result("divided", y, {&x, &sums}, [x, sums, y](const Tensor& dy) {
    const Tensor dx = Tensor::empty_like(dy);
    ops::binary(dx, dy, sums.value().broadcast(dy.shape()), ops::Binary::quotient);
    if (sums.needs_gradient()) {
      const Tensor products = Tensor::empty_like(dy), of_lines = Tensor::empty_like(sums.value());
      ops::multiply(products, dx, y);
      const int last = dy.shape().rank() - 1;
      ops::sum_axis(of_lines.reshape(Shape(std::span(dy.shape().begin(), static_cast<size_t>(last)))), products, last,
                    -1);
      add_to_gradient(sums, of_lines);
    }
    add_to_gradient(x, dx);
  });
}

// Features [.., N, D] with any factor: [.., N, Dv].
Variable read(Tape& t, const Variable& features, const InfiniState& state) {
  const Variable sums = matmul(t, features, state.normaliser);
  return divided(t, matmul(t, features, state.matrix), maximum(t, sums, number(kTiny, sums)));
}

Variable scaled_to_one(Tape& t, const Variable& features) {
  Tape idle(false);
  const Variable sums = sum(idle, Variable::constant(features.value()), -1, true);
  return divided(t, features, maximum(idle, sums, number(kTiny, sums)));
}

// x [R, N, heads, D] at places in [N, heads]: [R, count, heads, length, D].
Variable gathered(Tape& t, const Variable& x, const Tensor& places, int64_t count, int64_t heads, int64_t length) {
  const int64_t rows = x.dim(0), size = x.dim(-1);
  const Variable lines = gather_rows(t, reshape(t, x, {rows, x.dim(1) * x.dim(2), size}), places);
  return reshape(t, lines, {rows, count, heads, length, size});
}

// x [R, N, Hk, ., .]: element n of axis 1.
Variable at_step(Tape& t, const Variable& x, int64_t n) {
  return reshape(t, slice(t, x, 1, n, n + 1), {x.dim(0), x.dim(2), x.dim(3), x.dim(4)});
}

Variable stacked(Tape& t, const std::vector<Variable>& states) {
  std::vector<Variable> parts;
  for (const Variable& x : states) parts.push_back(reshape(t, x, {x.dim(0), 1, x.dim(1), x.dim(2), x.dim(3)}));
  return concatenate(t, parts, 1);
}

template <typename F>
InfiniState each(const InfiniState& state, const F& f) {
  return {f(state.matrix), f(state.normaliser)};
}

}  // namespace

InfiniTables infini_tables(const std::vector<InfiniPiece>& pieces, const InfiniShape& shape, Device device) {
  struct Flags {
    std::vector<uint8_t> begins, cut, writes;
    bool reads = false;
  };
  const auto rows = static_cast<size_t>(shape.rows);
  InfiniTables to;
  std::vector<Flags> steps;
  std::vector<size_t> step_of, next(rows, 0);
  for (const InfiniPiece& piece : pieces) {
    const auto row = static_cast<size_t>(piece.row);
    const size_t n = next[row]++;
    step_of.push_back(n);
    const std::vector<uint8_t> none(rows, 0);
    if (n == steps.size()) steps.push_back({none, none, none});
    steps[n].begins[row] = piece.begins ? 1 : 0;
    steps[n].cut[row] = piece.cut ? 1 : 0;
    steps[n].writes[row] = piece.keys > 0 ? 1 : 0;
    steps[n].reads = steps[n].reads || piece.queries > 0;
    to.queries = std::max(to.queries, piece.queries);
    to.keys = std::max(to.keys, piece.keys);
  }
  for (const Flags& flags : steps) {
    const auto mask = [&](const std::vector<uint8_t>& values) {
      const bool any = std::find(values.begin(), values.end(), 1) != values.end();
      return any ? Tensor::from(values, {shape.rows, 1, 1, 1}, device) : Tensor();
    };
    to.steps.push_back({mask(flags.begins), mask(flags.cut), mask(flags.writes)});
    if (flags.reads) to.steps.back().read = to.reads++;
    if (to.steps.back().writes.defined()) to.steps.back().written = to.writes++;
  }
  const int64_t of_queries = to.reads * shape.heads * to.queries, of_keys = to.writes * shape.key_heads * to.keys;
  std::vector<int32_t> query(static_cast<size_t>(shape.rows * of_queries), -1);
  std::vector<int32_t> key(static_cast<size_t>(shape.rows * of_keys), -1);
  std::vector<int32_t> out(static_cast<size_t>(shape.rows * shape.tokens * shape.heads), -1);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const InfiniPiece& piece = pieces[i];
    const InfiniTables::Step& step = to.steps[step_of[i]];
    for (int64_t h = 0; h < shape.heads; ++h) {
      for (int64_t n = 0; n < piece.queries; ++n) {
        const int64_t place = (step.read * shape.heads + h) * to.queries + n;
        const int64_t token = (piece.first_query + n) * shape.heads + h;
        query[static_cast<size_t>(piece.row * of_queries + place)] = static_cast<int32_t>(token);
        out[static_cast<size_t>(piece.row * shape.tokens * shape.heads + token)] = static_cast<int32_t>(place);
      }
    }
    for (int64_t h = 0; h < shape.key_heads; ++h) {
      for (int64_t n = 0; n < piece.keys; ++n) {
        const int64_t place = (step.written * shape.key_heads + h) * to.keys + n;
        key[static_cast<size_t>(piece.row * of_keys + place)] =
            static_cast<int32_t>((piece.first_key + n) * shape.key_heads + h);
      }
    }
  }
  to.query = Tensor::from(query, {shape.rows, of_queries}, device);
  to.key = Tensor::from(key, {shape.rows, of_keys}, device);
  to.out = Tensor::from(out, {shape.rows, shape.tokens * shape.heads}, device);
  return to;
}

InfiniRead infini_memory(Tape& t, const Variable& q, const Variable& k, const Variable& v, InfiniState state,
                         const InfiniTables& tables, InfiniUpdate update, double keep) {
  const int64_t rows = q.dim(0), tokens = q.dim(1), heads = q.dim(2), key_heads = k.dim(2), value_size = v.dim(3);
  Variable keys, values, unit_keys, matrices, normalisers;
  if (tables.writes > 0) {
    keys = gathered(t, features(t, k, false), tables.key, tables.writes, key_heads, tables.keys);
    values = gathered(t, v, tables.key, tables.writes, key_heads, tables.keys);
    normalisers = sum(t, keys, 3);
    normalisers = reshape(t, normalisers, {rows, tables.writes, key_heads, k.dim(3), 1});
    if (update == InfiniUpdate::linear) {
      matrices = matmul(t, keys, values, {.transpose_a = true});
    } else {
      unit_keys = scaled_to_one(t, keys);
    }
  }
  InfiniRead result;
  std::vector<Variable> read_matrices, read_normalisers;
  for (const InfiniTables::Step& step : tables.steps) {
    if (step.begins.defined()) {
      // Selected, not multiplied: what another document has left may be infinite.
      state = each(state, [&](const Variable& x) { return select(t, step.begins, {}, x); });
    }
    if (step.cut.defined()) {
      state = each(state, [&](const Variable& x) { return select(t, step.cut, Variable::constant(x.value()), x); });
    }
    if (step.read >= 0) {
      read_matrices.push_back(state.matrix);
      read_normalisers.push_back(state.normaliser);
    }
    if (step.written >= 0) {
      const int64_t n = step.written;
      Variable added;
      if (update == InfiniUpdate::linear) {
        added = at_step(t, matrices, n);
      } else {
        const Variable errors = subtract(t, at_step(t, values, n), read(t, at_step(t, unit_keys, n), state));
        added = matmul(t, at_step(t, keys, n), errors, {.transpose_a = true});
      }
      if (keep != 1) {
        state = each(state, [&](const Variable& x) { return select(t, step.writes, scale(t, x, keep), x); });
      }
      state = {add(t, state.matrix, added), add(t, state.normaliser, at_step(t, normalisers, n))};
    }
    result.after.push_back(state);
  }
  if (tables.reads == 0) return result;
  // The query heads of a key head read one memory.
  const Variable queries =
      gathered(t, features(t, q, true), tables.query, tables.reads, key_heads, heads / key_heads * tables.queries);
  const Variable found = read(t, queries, {stacked(t, read_matrices), stacked(t, read_normalisers)});
  const Variable lines = reshape(t, found, {rows, tables.reads * heads * tables.queries, value_size});
  result.out = reshape(t, gather_rows(t, lines, tables.out), {rows, tokens, heads, value_size});
  return result;
}

}  // namespace quire
