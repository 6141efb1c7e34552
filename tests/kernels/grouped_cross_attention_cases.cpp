// Compares the function of grouped cross-attention with a composition that gathers the keys of every query, and both
// operations with loops over pairs.
#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/grouped_cross_attention.h"
#include "autograd/functions/pointwise.h"
#include "autograd/functions/rows.h"
#include "autograd/functions/views.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

using Inputs = std::vector<Variable>;
using Tensors = std::vector<Tensor>;

struct GroupedForm {
  std::string name;
  int64_t rows = 2, queries = 11, heads = 2, kv_heads = 1, size = 3, value_size = 4;
  int64_t chunks = 4, length = 4, lists = 3, chosen = 2;
  int64_t per_list = 4;    // queries that read a list; rows begin within their first list, each elsewhere
  int64_t before = 0;      // queries at the beginning that read none
  bool backwards = false;  // the first queries read the last list
  bool shared = true;      // rows choose among the same chunks
  bool softmax_one = false;
  bool rounded = false;  // stored as bf16
  double spread = 1;     // of the queries
  double mean = 0;       // of queries, and of keys with the other sign
  double amplification = 8;
};

// q, keys, values, weight, chosen, list. The second list of row 0 is empty; other lists have empty entries at random.
std::vector<Tensor> tensors_of(const GroupedForm& f, RandomTensors& random) {
  std::vector<int32_t> chosen, list;
  for (int64_t row = 0; row < f.rows; ++row) {
    for (int64_t l = 0; l < f.lists; ++l) {
      std::vector<int32_t> order;
      for (int64_t chunk = 0; chunk < f.chunks; ++chunk) {
        if (f.shared || chunk % f.rows == row) order.push_back(static_cast<int32_t>(chunk));
      }
      for (size_t n = 0; n < order.size(); ++n) {
        std::swap(order[n], order[n + static_cast<size_t>(random.below(static_cast<int64_t>(order.size() - n)))]);
      }
      for (int64_t n = 0; n < f.chosen; ++n) {
        const bool none = n >= static_cast<int64_t>(order.size()) || (row == 0 && l == 1) || random.below(6) == 0;
        chosen.push_back(none ? -1 : order[static_cast<size_t>(n)]);
      }
    }
    for (int64_t t = 0; t < f.queries; ++t) {
      const int64_t l = (t - f.before + row) / f.per_list;
      const bool none = t < f.before || l >= f.lists;
      list.push_back(static_cast<int32_t>(none ? -1 : (f.backwards ? f.lists - 1 - l : l)));
    }
  }
  return {random.normal({f.rows, f.queries, f.heads, f.size}, f.spread, f.mean),
          random.normal({f.chunks, f.length, f.kv_heads, f.size}, 1, -f.mean),
          random.normal({f.chunks, f.length, f.kv_heads, f.value_size}),
          random.normal({f.rows, f.lists, f.chosen}),
          Tensor::from(chosen, {f.rows, f.lists, f.chosen}),
          Tensor::from(list, {f.rows, f.queries})};
}

ops::GroupedCrossAttentionInputs settings_of(const GroupedForm& f, const Tensors& x) {
  const auto stored = [&](const Tensor& tensor) { return f.rounded ? recast(tensor, DType::bf16) : tensor; };
  return {x[0], stored(x[1]), stored(x[2]), x[3], x[4], x[5], 0.7, f.softmax_one};
}

// The chunk behind entry n of the list of query t; -1: none.
int64_t chunk_of(const ops::GroupedCrossAttentionInputs& in, int64_t row, int64_t t, int64_t n) {
  const int64_t l = in.list.data<int32_t>()[row * in.q.dim(1) + t];
  return l < 0 ? -1 : in.chosen.data<int32_t>()[(row * in.chosen.dim(1) + l) * in.chosen.dim(2) + n];
}

Variable composed(Tape& t, const Variable& q, const Variable& keys, const Variable& values, const Variable& weight,
                  const ops::GroupedCrossAttentionInputs& in) {
  const int64_t rows = q.dim(0), queries = q.dim(1), heads = q.dim(2), size = q.dim(3);
  const int64_t length = in.keys.dim(1), kv_heads = in.keys.dim(2), chosen = in.chosen.dim(2);
  const int64_t value_size = in.values.dim(3);
  std::vector<int32_t> lines;
  for (int64_t i = 0; i < rows * queries * heads * chosen; ++i) {
    const int64_t chunk = chunk_of(in, i / (chosen * heads * queries), i / (chosen * heads) % queries, i % chosen);
    const int64_t kv_head = i / chosen % heads / (heads / kv_heads);
    for (int64_t j = 0; j < length; ++j) {
      lines.push_back(static_cast<int32_t>(chunk < 0 ? -1 : (chunk * length + j) * kv_heads + kv_head));
    }
  }
  const Shape pairs{rows, queries, heads, chosen, length};
  const Tensor index = Tensor::from(lines, pairs);
  const auto lines_of = [&](const Variable& stored) {
    return gather_rows(t, reshape(t, stored, {stored.shape().numel() / stored.dim(3), stored.dim(3)}), index);
  };
  const Variable wide_q =
      broadcast(t, reshape(t, q, {rows, queries, heads, 1, 1, size}), {rows, queries, heads, chosen, length, size});
  const Variable logits = scale(t, sum(t, multiply(t, wide_q, lines_of(keys)), -1), in.scale);
  Variable p;
  if (in.softmax_one) {
    Shape ones = pairs;
    ones[4] = 1;
    const std::vector<Variable> parts{logits, Variable::constant(Tensor::zeros(ones, DType::f64))};
    p = slice(t, softmax(t, concatenate(t, parts, 4)), 4, 0, length);
  } else {
    p = softmax(t, logits);
  }
  std::vector<double> is_chosen;
  for (int64_t i = 0; i < in.chosen.numel(); ++i) is_chosen.push_back(in.chosen.data<int32_t>()[i] < 0 ? 0 : 1);
  const Variable weights = multiply(t, weight, Variable::constant(Tensor::from(is_chosen, weight.shape())));
  const Variable by_query = reshape(t, gather_rows(t, weights, in.list), {rows, queries, 1, chosen, 1});
  const Variable shares =
      reshape(t, multiply(t, p, broadcast(t, by_query, pairs)), {rows, queries, heads, chosen * length, 1});
  return sum(t, multiply(t, shares, reshape(t, lines_of(values), {rows, queries, heads, chosen * length, value_size})),
             3);
}

void set_accuracy(OpCase& made, const GroupedForm& f) {
  made.wide = {3};
  if (f.rounded) made.constants = {1, 2};
  made.sum_length = f.rows * f.queries * f.chosen * f.length;
  made.amplification = f.amplification;
  made.roundings = 24;
}

void add_function(std::vector<OpCase>& cases, const GroupedForm& f) {
  RandomTensors random(static_cast<uint32_t>(cases.size()));
  const auto settings = [f](const Inputs& x) {
    Tensors values;
    for (const Variable& variable : x) values.push_back(variable.value());
    return settings_of(f, values);
  };
  const auto stored = [](const Variable& x, const Tensor& tensor) {
    return tensor.dtype() == x.value().dtype() ? x : Variable::constant(tensor);
  };
  OpCase made =
      function_case("grouped_cross_attention", f.name, tensors_of(f, random), OneOutput([=](Tape& t, const Inputs& x) {
                      const ops::GroupedCrossAttentionInputs in = settings(x);
                      return grouped_cross_attention(t, x[0], stored(x[1], in.keys), stored(x[2], in.values), x[3], in);
                    }));
  made.composition = one_output([=](Tape& t, const Inputs& x) {
    const ops::GroupedCrossAttentionInputs in = settings(x);
    const auto wide = [&](const Variable& variable, const Tensor& tensor) {
      return f.rounded ? Variable::constant(recast(tensor, DType::f64)) : variable;
    };
    return composed(t, x[0], wide(x[1], in.keys), wide(x[2], in.values), x[3], in);
  });
  set_accuracy(made, f);
  cases.push_back(made);
}

// One softmax over a chunk for a query and head.
struct Softmax {
  std::vector<double> p;
  double log_sum = 0;

  Softmax(const ops::GroupedCrossAttentionInputs& in, int64_t query, int64_t chunk) {
    const int64_t heads = in.q.dim(2), size = in.q.dim(3), length = in.keys.dim(1), kv_heads = in.keys.dim(2);
    const int64_t kv_head = query % heads / (heads / kv_heads);
    double top = in.softmax_one ? 0 : -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < length; ++j) {
      double product = 0;
      for (int64_t d = 0; d < size; ++d) {
        product +=
            values(in.q)[query * size + d] * values(in.keys)[((chunk * length + j) * kv_heads + kv_head) * size + d];
      }
      p.push_back(in.scale * product);
      top = std::max(top, p.back());
    }
    double divisor = in.softmax_one ? std::exp(-top) : 0;
    for (const double logit : p) divisor += std::exp(logit - top);
    log_sum = top + std::log(divisor);
    for (double& logit : p) logit = std::exp(logit - log_sum);
  }
};

// Calls body(query and head of [R, T, H], entry of weight, of lse, chunk, its softmax) for all that is chosen.
template <typename Body>
void for_chosen(const ops::GroupedCrossAttentionInputs& in, Body&& body) {
  const int64_t queries = in.q.dim(1), heads = in.q.dim(2), chosen = in.chosen.dim(2);
  for (int64_t query = 0; query < in.q.dim(0) * queries * heads; ++query) {
    const int64_t row = query / heads / queries, t = query / heads % queries;
    for (int64_t n = 0; n < chosen; ++n) {
      const int64_t chunk = chunk_of(in, row, t, n);
      if (chunk < 0) continue;
      const int64_t l = in.list.data<int32_t>()[row * queries + t];
      body(query, (row * in.chosen.dim(1) + l) * chosen + n, ((row * heads + query % heads) * queries + t) * chosen + n,
           chunk, Softmax(in, query, chunk));
    }
  }
}

double* line_of(const Tensor& stored, const ops::GroupedCrossAttentionInputs& in, int64_t query, int64_t chunk,
                int64_t j) {
  const int64_t kv_heads = stored.dim(2);
  const int64_t kv_head = query % in.q.dim(2) / (in.q.dim(2) / kv_heads);
  return values(stored) + ((chunk * stored.dim(1) + j) * kv_heads + kv_head) * stored.dim(3);
}

Shape lse_shape(const Tensors& x) {
  return {x[0].dim(0), x[0].dim(2), x[0].dim(1), x[4].dim(2)};
}

Tensor out_of(const Tensors& x) {
  return beside(x[0], {x[0].dim(0), x[0].dim(1), x[0].dim(2), x[2].dim(3)});
}

// Outputs begin with other values, so that a value that is not written is noticed.
Tensor unwritten(const Tensor& tensor) {
  const Tensor filled = converted(
      Tensor::from(std::vector<double>(static_cast<size_t>(tensor.numel()), 77.0), tensor.shape()), tensor.dtype());
  return on_device(filled, tensor.device());
}

void add_forward(std::vector<OpCase>& cases, const GroupedForm& f) {
  RandomTensors random(static_cast<uint32_t>(cases.size()));
  Tensors inputs = tensors_of(f, random);
  // The weights of entries without a chunk are not read.
  for (int64_t i = 0; i < inputs[4].numel(); ++i) {
    if (inputs[4].data<int32_t>()[i] < 0) values(inputs[3])[i] = std::numeric_limits<double>::quiet_NaN();
  }
  OpCase made{"grouped_cross_attention", "op_" + f.name, inputs, [f](const Tensors& x) {
                const Tensor out = unwritten(out_of(x)), lse = unwritten(wide_beside(x[0], lse_shape(x)));
                ops::grouped_cross_attention(out, lse, settings_of(f, x));
                return Tensors{out, lse};
              }};
  made.reference = [f](const Tensors& x) {
    ops::GroupedCrossAttentionInputs in = settings_of(f, x);
    in.keys = converted(in.keys, DType::f64);
    in.values = converted(in.values, DType::f64);
    const Tensor out = out_of(x), lse = beside(x[0], lse_shape(x));
    const int64_t value_size = in.values.dim(3);
    for_chosen(in, [&](int64_t query, int64_t entry, int64_t at, int64_t chunk, const Softmax& softmax) {
      values(lse)[at] = softmax.log_sum;
      for (size_t j = 0; j < softmax.p.size(); ++j) {
        const double* value = line_of(in.values, in, query, chunk, static_cast<int64_t>(j));
        for (int64_t d = 0; d < value_size; ++d) {
          values(out)[query * value_size + d] += values(in.weight)[entry] * softmax.p[j] * value[d];
        }
      }
    });
    return Tensors{out, lse};
  };
  set_accuracy(made, f);
  cases.push_back(made);
}

// asked: dq, dkeys, dvalues, dweight.
void add_backward(std::vector<OpCase>& cases, const GroupedForm& f, const std::string& variant,
                  std::array<bool, 4> asked) {
  RandomTensors random(static_cast<uint32_t>(cases.size()));
  Tensors inputs = tensors_of(f, random);
  inputs.push_back(random.normal({f.rows, f.queries, f.heads, f.value_size}));
  OpCase made{"grouped_cross_attention_backward", f.name + variant, inputs, [=](const Tensors& x) {
                const Tensor lse = wide_beside(x[0], lse_shape(x));
                const ops::GroupedCrossAttentionInputs in = settings_of(f, x);
                ops::grouped_cross_attention(out_of(x), lse, in);
                Tensors d, given;
                for (size_t i = 0; i < 4; ++i) d.push_back(asked[i] ? unwritten(x[i]) : Tensor());
                ops::grouped_cross_attention_backward({d[0], d[1], d[2], d[3]}, x[6], lse, in);
                for (const Tensor& gradient : d) {
                  if (gradient.defined()) given.push_back(gradient);
                }
                return given;
              }};
  made.reference = [=](const Tensors& x) {
    ops::GroupedCrossAttentionInputs in = settings_of(f, x);
    in.keys = converted(in.keys, DType::f64);
    in.values = converted(in.values, DType::f64);
    const Tensors d{like(x[0]), like(x[1]), like(x[2]), like(x[3])};
    const int64_t size = in.q.dim(3), value_size = in.values.dim(3);
    for_chosen(in, [&](int64_t query, int64_t entry, int64_t, int64_t chunk, const Softmax& softmax) {
      const double weight = values(in.weight)[entry];
      std::vector<double> dp;
      double inner = 0;
      for (size_t j = 0; j < softmax.p.size(); ++j) {
        const double* value = line_of(in.values, in, query, chunk, static_cast<int64_t>(j));
        double* dvalue = line_of(d[2], in, query, chunk, static_cast<int64_t>(j));
        dp.push_back(0);
        for (int64_t i = 0; i < value_size; ++i) {
          const double dout = values(x[6])[query * value_size + i];
          dp[j] += dout * value[i];
          dvalue[i] += weight * softmax.p[j] * dout;
        }
        inner += softmax.p[j] * dp[j];
      }
      values(d[3])[entry] += inner;
      for (size_t j = 0; j < softmax.p.size(); ++j) {
        const double ds = in.scale * weight * softmax.p[j] * (dp[j] - inner);
        const double* key = line_of(in.keys, in, query, chunk, static_cast<int64_t>(j));
        double* dkey = line_of(d[1], in, query, chunk, static_cast<int64_t>(j));
        for (int64_t i = 0; i < size; ++i) {
          values(d[0])[query * size + i] += ds * key[i];
          dkey[i] += ds * values(in.q)[query * size + i];
        }
      }
    });
    Tensors given;
    for (size_t i = 0; i < 4; ++i) {
      if (asked[i]) given.push_back(d[i]);
    }
    return given;
  };
  set_accuracy(made, f);
  made.constants = {};
  cases.push_back(made);
}

}  // namespace

void add_grouped_cross_attention_cases(std::vector<OpCase>& cases) {
  const std::vector<GroupedForm> forms{
      {.name = "small"},
      {.name = "one",
       .rows = 1,
       .queries = 1,
       .heads = 1,
       .size = 1,
       .value_size = 1,
       .chunks = 1,
       .length = 1,
       .lists = 1,
       .chosen = 1},
      {.name = "softmax_one", .rows = 1, .heads = 4, .kv_heads = 2, .chunks = 3, .softmax_one = true},
      {.name = "late", .rows = 3, .queries = 8, .chunks = 6, .lists = 2, .per_list = 3, .before = 3, .shared = false},
      {.name = "more_than_there_is", .rows = 1, .chunks = 2, .chosen = 5, .backwards = true, .softmax_one = true},
      {.name = "token", .rows = 3, .queries = 1, .heads = 3, .kv_heads = 3, .length = 5, .lists = 2, .per_list = 3},
      {.name = "lists_of_one_query", .queries = 5, .length = 1, .lists = 6, .chosen = 1, .per_list = 1},
      {.name = "rows_apart",
       .queries = 9,
       .heads = 2,
       .kv_heads = 2,
       .chunks = 6,
       .length = 5,
       .lists = 2,
       .chosen = 3,
       .per_list = 5,
       .shared = false},
      {.name = "tiles",
       .rows = 1,
       .queries = 201,
       .heads = 2,
       .kv_heads = 2,
       .size = 2,
       .value_size = 1,
       .chunks = 3,
       .length = 6,
       .lists = 4,
       .per_list = 130},
      {.name = "chunk_of_a_tile",
       .rows = 1,
       .queries = 12,
       .size = 2,
       .value_size = 3,
       .chunks = 3,
       .length = 64,
       .per_list = 7},
      {.name = "chunk_over_a_tile",
       .rows = 1,
       .queries = 7,
       .size = 2,
       .value_size = 2,
       .chunks = 3,
       .length = 70,
       .per_list = 5,
       .softmax_one = true},
      {.name = "long_chunk",
       .rows = 1,
       .queries = 4,
       .heads = 1,
       .size = 2,
       .value_size = 2,
       .chunks = 2,
       .length = 300,
       .per_list = 3},
      {.name = "wide", .rows = 1, .queries = 4, .heads = 1, .size = 132, .value_size = 70, .lists = 2, .spread = 0.3},
      {.name = "large_logits", .rows = 1, .size = 4, .spread = 20, .amplification = 400},
      {.name = "large_logits_one", .rows = 1, .size = 4, .softmax_one = true, .spread = 20, .amplification = 400},
      {.name = "low_logits_one", .rows = 1, .softmax_one = true, .spread = 0.5, .mean = 3, .amplification = 200},
  };
  // Heads in whole chunks of 8 features: tensor cores in bf16.
  const std::vector<GroupedForm> of_chunks{
      {.name = "chunks",
       .queries = 71,
       .heads = 4,
       .kv_heads = 2,
       .size = 16,
       .value_size = 24,
       .chunks = 3,
       .length = 64,
       .lists = 2,
       .per_list = 66,
       .before = 3,
       .spread = 0.5},
      {.name = "chunks_one",
       .rows = 1,
       .queries = 1,
       .heads = 1,
       .size = 8,
       .value_size = 8,
       .chunks = 2,
       .length = 2,
       .lists = 1,
       .chosen = 1},
      {.name = "chunks_long",
       .rows = 1,
       .queries = 20,
       .size = 24,
       .value_size = 8,
       .chunks = 3,
       .length = 150,
       .chosen = 3,
       .per_list = 9,
       .softmax_one = true,
       .spread = 0.5},
      {.name = "chunks_of_rows",
       .rows = 3,
       .queries = 37,
       .heads = 2,
       .kv_heads = 2,
       .size = 64,
       .value_size = 40,
       .chunks = 6,
       .length = 19,
       .lists = 2,
       .chosen = 3,
       .per_list = 21,
       .shared = false,
       .spread = 0.2},
      {.name = "chunks_of_tiles",
       .rows = 1,
       .queries = 205,
       .heads = 1,
       .size = 8,
       .value_size = 8,
       .chunks = 3,
       .length = 5,
       .lists = 2,
       .per_list = 170,
       .spread = 0.5},
      {.name = "chunks_widest",
       .rows = 1,
       .queries = 40,
       .size = 128,
       .value_size = 128,
       .chunks = 2,
       .length = 66,
       .lists = 1,
       .per_list = 38,
       .spread = 0.1},
      // In the backward pass values are too wide.
      {.name = "chunks_wide", .rows = 1, .queries = 7, .heads = 1, .size = 72, .value_size = 136, .spread = 0.2},
      {.name = "chunks_large_logits", .rows = 1, .size = 8, .value_size = 8, .spread = 20, .amplification = 400},
      {.name = "chunks_low_logits_one",
       .rows = 1,
       .size = 8,
       .value_size = 8,
       .softmax_one = true,
       .spread = 0.5,
       .mean = 2,
       .amplification = 200},
  };
  for (const GroupedForm& form : forms) add_function(cases, form);
  for (const GroupedForm& form : of_chunks) add_function(cases, form);
  add_function(cases, {.name = "bf16", .rounded = true, .spread = 0.7});
  for (const size_t n : {size_t{0}, size_t{2}, size_t{3}, size_t{10}}) {
    add_forward(cases, forms[n]);
    add_backward(cases, forms[n], "", {true, true, true, true});
  }
  add_forward(cases, {.name = "bf16", .rounded = true});
  add_backward(cases, {.name = "bf16", .rounded = true}, "", {true, false, false, true});
  // A gradient that is requested does not need the others.
  add_backward(cases, forms[0], "_queries", {true, false, false, false});
  add_backward(cases, forms[0], "_keys", {false, true, false, false});
  add_backward(cases, forms[0], "_values", {false, false, true, false});
  add_backward(cases, forms[0], "_weights", {false, false, false, true});
  for (const size_t n : {size_t{0}, size_t{2}}) {
    add_forward(cases, of_chunks[n]);
    add_backward(cases, of_chunks[n], "", {true, true, true, true});
    add_backward(cases, of_chunks[n], "_queries", {true, false, false, false});
    add_backward(cases, of_chunks[n], "_keys", {false, true, false, false});
    add_backward(cases, of_chunks[n], "_values", {false, false, true, true});
    add_backward(cases, of_chunks[n], "_weights", {false, false, false, true});
  }
}

}  // namespace quire::test
