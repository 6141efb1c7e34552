// Transformer-VQ: caches of values by codeword and attention to them.
#include "kernels/vq.h"

#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/vq_sizes.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"
#include "tests/support/composed_attention.h"

namespace quire::test {

namespace {

// --- caches

struct CacheForm {
  std::string name = {};
  int64_t rows = 0, tokens = 0, kv_heads = 0, codes = 0, value_size = 0, slots = 0;
  // Each row has one entry per cache.
  std::vector<std::vector<int32_t>> origin = {};
  std::vector<std::vector<int32_t>> limit = {};
  bool one_code = false;
  int64_t largest_count = 4;
};

CacheForm of_sizes(const std::string& name, const std::array<int64_t, 6>& sizes, CacheForm form) {
  form.name = name;
  std::tie(form.rows, form.tokens, form.kv_heads, form.codes, form.value_size, form.slots) = std::tuple_cat(sizes);
  return form;
}

Tensor joined_rows(const std::vector<std::vector<int32_t>>& rows) {
  std::vector<int32_t> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return Tensor::from(all, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
}

ops::CodeCacheInputs assembled(const Tensors& t, ops::CodeReduction reduction) {
  return {{t[1], t[3], t[4], t[7], t[8]}, t[0], t[2], t[5], t[6], reduction};
}

ops::TokensByCode sorted_by_code(const Tensors& t) {
  const ops::CodeCacheInputs in = assembled(t, {});
  const ops::TokensByCode sorted = empty_tokens_by_code(in.tokens, in.mean.dim(2));
  ops::sort_by_code(sorted, in.tokens);
  return sorted;
}

// Finds where a token of cache b lies: in v, or in the window.
struct CacheReader {
  ops::CodeCacheInputs in;
  int64_t heads = in.v.dim(2), tokens = in.v.dim(1), width = in.v.dim(3), codes = in.mean.dim(2);
  int64_t caches = in.tokens.origin.dim(1), slots = in.window_v.defined() ? in.window_v.dim(1) : 0;

  int64_t line(int64_t row, int64_t head, int64_t position) const {
    if (position >= 0) return (row * tokens + position) * heads + head;
    return (row * slots + (at(in.tokens.window_head, row) + position + slots) % slots) * heads + head;
  }
  int32_t code(int64_t row, int64_t head, int64_t position) const {
    return at(position >= 0 ? in.tokens.codes : in.tokens.window_codes, line(row, head, position));
  }

  // Calls body(cache, position, index of the vector in v or window_v) for tokens that have a code.
  template <typename Body>
  void for_each_token(Body&& body) const {
    for (int64_t r = 0; r < in.v.dim(0); ++r) {
      for (int64_t b = 0; b < caches; ++b) {
        for (int64_t p = at(in.tokens.origin, r * caches + b); p < at(in.tokens.limit, r * caches + b); ++p) {
          for (int64_t h = 0; h < heads; ++h) {
            const int32_t found = code(r, h, p);
            if (found >= 0) body(((r * caches + b) * heads + h) * codes + found, p, line(r, h, p));
          }
        }
      }
    }
  }
};

// Positions of tokens with a code, and ranges: codeword by codeword, cache by cache, token by token.
Tensors sorted_reference(const ops::CodeCacheInputs& in) {
  const CacheReader read{in};
  const int64_t rows = in.v.dim(0);
  std::vector<int32_t> positions;
  const Tensor ranges = Tensor::zeros({rows, read.caches, read.heads, read.codes, 2}, DType::i32);
  for (int64_t word = 0; word < rows * read.heads * read.codes; ++word) {
    const int64_t row = word / (read.heads * read.codes);
    const int64_t head = word / read.codes % read.heads;
    const size_t begin = positions.size();
    for (int64_t p = -read.slots; p < read.tokens; ++p) {
      if (read.code(row, head, p) == word % read.codes) positions.push_back(static_cast<int32_t>(p + read.slots));
    }
    for (int64_t b = 0; b < read.caches; ++b) {
      const int64_t cache = row * read.caches + b;
      int64_t low = at(in.tokens.origin, cache);
      if (b > 0 && at(in.tokens.origin, cache - 1) == low) low = std::max<int64_t>(low, at(in.tokens.limit, cache - 1));
      auto range = static_cast<int32_t>(begin);
      while (range < std::ssize(positions) && positions[static_cast<size_t>(range)] - read.slots < low) ++range;
      int32_t* const to = ranges.data<int32_t>() + 2 * ((cache * read.heads + head) * read.codes + word % read.codes);
      to[0] = range;
      while (range < std::ssize(positions) &&
             positions[static_cast<size_t>(range)] - read.slots < at(in.tokens.limit, cache)) {
        ++range;
      }
      to[1] = range;
    }
  }
  return {Tensor::from(positions, {std::ssize(positions)}), ranges};
}

// The means of all caches and their counts.
Tensors all_caches_reference(const ops::CodeCacheInputs& in) {
  const CacheReader read{in};
  const Tensor means = beside(in.v, {in.v.dim(0), read.caches, read.heads, read.codes, read.width});
  const Tensor counts = beside(in.v, {in.v.dim(0), read.caches, read.heads, read.codes});
  for (int64_t i = 0; i < counts.numel(); ++i) {
    const int64_t per_row = read.heads * read.codes;
    if (at(in.tokens.origin, i / per_row) > 0) continue;
    const int64_t from = i / per_row / read.caches * per_row + i % per_row;
    values(counts)[i] = values(in.count)[from];
    for (int64_t d = 0; d < read.width; ++d) {
      values(means)[i * read.width + d] = values(in.count)[from] * values(in.mean)[from * read.width + d];
    }
  }
  read.for_each_token([&](int64_t cache, int64_t position, int64_t line) {
    values(counts)[cache] += 1;
    for (int64_t d = 0; d < read.width; ++d) {
      values(means)[cache * read.width + d] += values(position >= 0 ? in.v : in.window_v)[line * read.width + d];
    }
  });
  for (int64_t i = 0; i < means.numel(); ++i) {
    const double n = values(counts)[i / read.width];
    values(means)[i] = n > 0 ? values(means)[i] / n : 0;
  }
  return {means, counts};
}

// Returns the means of the caches that are read, those of the last one, and counts.
Tensors caches_reference(const ops::CodeCacheInputs& in) {
  const Tensors all = all_caches_reference(in);
  const int64_t caches = all[0].dim(1);
  return {packed(all[0].slice(1, 0, caches - 1)), packed(all[0].select(1, caches - 1)), all[1]};
}

Tensors caches_backward_reference(const ops::CodeCacheInputs& in, const Tensor& dv, const Tensor& dmeans,
                                  const Tensor& counts) {
  const CacheReader read{in};
  read.for_each_token([&](int64_t cache, int64_t position, int64_t line) {
    const int64_t of_row = read.heads * read.codes;
    const int64_t row = cache / of_row / read.caches;
    if (cache / of_row % read.caches + 1 == read.caches) return;  // constant
    for (int64_t d = 0; position >= 0 && d < read.width; ++d) {
      values(dv)[line * read.width + d] +=
          values(dmeans)[(cache - row * of_row) * read.width + d] / values(counts)[cache];
    }
  });
  return {dv};
}

Tensors shown_as_f64(const Tensor& positions, const Tensor& ranges) {
  return {recast(positions, DType::f64), recast(ranges, DType::f64)};
}

void add_caches(std::vector<OpCase>& cases, RandomTensors& random, const CacheForm& f) {
  const Shape carried{f.rows, f.kv_heads, f.codes};
  const auto codes_of = [&](int64_t count) {
    return random.integers({f.rows, count, f.kv_heads}, f.one_code ? 1 : -1, f.one_code ? 2 : f.codes);
  };
  Tensors inputs{random.normal({f.rows, f.tokens, f.kv_heads, f.value_size}), codes_of(f.tokens)};
  if (f.slots > 0) {
    inputs.push_back(random.normal({f.rows, f.slots, f.kv_heads, f.value_size}));
    inputs.push_back(codes_of(f.slots));
    inputs.push_back(random.integers({f.rows}, 0, f.slots));
  } else {
    inputs.resize(5);
  }
  inputs.push_back(random.normal({f.rows, f.kv_heads, f.codes, f.value_size}));
  inputs.push_back(whole(random, carried, 0, f.largest_count));
  for (int64_t i = 0; i < inputs[5].numel(); ++i) {
    if (values(inputs[6])[i / f.value_size] == 0) values(inputs[5])[i] = 0;
  }
  inputs.push_back(joined_rows(f.origin));
  inputs.push_back(joined_rows(f.limit));
  const auto caches = static_cast<int64_t>(f.origin[0].size());
  const int64_t terms = f.tokens + f.slots + caches;
  const Tensor counted = all_caches_reference(assembled(inputs, {}))[1];
  const int64_t entering = sorted_reference(assembled(inputs, {}))[0].numel();
  add_operation(
      cases, "sort_by_code", f.name, inputs, 0,
      [=](const Tensors& t) {
        const ops::TokensByCode sorted = sorted_by_code(t);
        return shown_as_f64(sorted.positions.slice(0, 0, entering), sorted.ranges);
      },
      [](const Tensors& t) {
        const Tensors sorted = sorted_reference(assembled(t, {}));
        return shown_as_f64(sorted[0], sorted[1]);
      },
      {5, 6});
  for (const auto& [reduction, name] : {std::pair{ops::CodeReduction::serial, "serial"},
                                        {ops::CodeReduction::matmul, "matmul"},
                                        {ops::CodeReduction::scan, "scan"}}) {
    const ops::CodeReduction by = reduction;
    add_operation(
        cases, "code_caches", f.name + "_" + name, inputs, terms,
        [=](const Tensors& t) {
          const Tensor means = beside(t[0], {f.rows, caches - 1, f.kv_heads, f.codes, f.value_size});
          const Tensor last = wide_beside(t[0], {f.rows, f.kv_heads, f.codes, f.value_size});
          const Tensor counts = wide_beside(t[0], {f.rows, caches, f.kv_heads, f.codes});
          ops::code_caches(means, last, counts, assembled(t, by), sorted_by_code(t));
          return Tensors{means, last, counts};
        },
        [=](const Tensors& t) { return caches_reference(assembled(t, by)); }, {5, 6});
  }
  Tensors backward = inputs;
  backward.push_back(random.normal(inputs[0].shape()));
  backward.push_back(random.normal({f.rows, caches - 1, f.kv_heads, f.codes, f.value_size}));
  backward.push_back(counted);
  add_operation(
      cases, "code_caches_backward", f.name, backward, caches,
      [](const Tensors& t) {
        ops::code_caches_backward(t[9], t[10], t[11], assembled(t, {}), sorted_by_code(t));
        return Tensors{t[9]};
      },
      [](const Tensors& t) { return caches_backward_reference(assembled(t, {}), t[9], t[10], t[11]); }, {5, 6, 11});
}

void add_cache_cases(std::vector<OpCase>& cases, RandomTensors& random) {
  // rows, tokens, key heads, codes, size of values, slots
  const std::vector<CacheForm> forms{
      of_sizes("one", {1, 1, 1, 1, 1, 0}, {.origin = {{0, 0}}, .limit = {{0, 1}}}),
      of_sizes("window", {2, 11, 2, 5, 3, 4},
               {.origin = {{-4, -4, -4, -4}, {-2, -2, -2, -2}}, .limit = {{-4, 0, 4, 7}, {-3, -1, 3, 9}}}),
      // Nothing in a row's caches, and documents that begin within another.
      of_sizes("documents", {3, 13, 2, 7, 5, 4},
               {.origin = {{0, 0, 0, 0, 0}, {-3, -3, 4, 4, 9}, {-1, 2, 2, 2, 11}},
                .limit = {{-4, -4, 0, 0, 0}, {-3, -1, 3, 8, 13}, {0, 2, 5, 7, 11}}}),
      // Values that a GPU reads several at a time.
      of_sizes("packs", {3, 13, 2, 7, 40, 4},
               {.origin = {{0, 0, 0, 0, 0}, {-3, -3, 4, 4, 9}, {-1, 2, 2, 2, 11}},
                .limit = {{-4, -4, 0, 0, 0}, {-3, -1, 3, 8, 13}, {0, 2, 5, 7, 11}}}),
      of_sizes("one_code", {1, 90, 1, 9, 37, 0}, {.origin = {{0, 0, 0}}, .limit = {{0, 30, 90}}, .one_code = true}),
      of_sizes("many_blocks", {2, 40, 1, 3, 2, 3},
               {.origin = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {-3, -3, -3, -3, -3, 11, 11, 11, 11, 11, 11, 11}},
                .limit = {{0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33}, {-3, 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 40}}}),
      of_sizes("large_counts", {1, 8, 2, 40, 70, 2},
               {.origin = {{-2, -2, -2}}, .limit = {{-2, 2, 8}}, .largest_count = 2000000}),
  };
  for (const CacheForm& form : forms) add_caches(cases, random, form);
}

// --- attention to caches

struct CodeForm {
  std::string name = {};
  int64_t rows = 0, queries = 0, heads = 0, kv_heads = 0, size = 0, value_size = 0, codes = 0, block = 0;
  int64_t largest_count = 5;
  bool u = true;
  bool first = false;  // nothing was attended to before
  double scale = 1;    // of logits
};

CodeForm of_sizes(const std::string& name, const std::array<int64_t, 8>& sizes, CodeForm form = {}) {
  form.name = name;
  std::tie(form.rows, form.queries, form.heads, form.kv_heads, form.size, form.value_size, form.codes, form.block) =
      std::tuple_cat(sizes);
  return form;
}

ops::CodeAttentionInputs assembled(const Tensors& t, int64_t block) {
  return {t[0], t[1], t[2], t[3], t[4], block};
}

// Calls body(index of the query's vector, of its lse, head, first codeword, first mean of its cache, weights of
// codewords).
template <typename Body>
void for_each_query(const ops::CodeAttentionInputs& in, Body&& body) {
  const int64_t queries = in.q.dim(1), heads = in.q.dim(2), size = in.q.dim(3);
  const int64_t kv_heads = in.codebook.dim(0), codes = in.codebook.dim(1), caches = in.counts.dim(1);
  for (int64_t i = 0; i < in.q.dim(0) * queries * heads; ++i) {
    const int64_t head = i % heads, query = i / heads % queries, row = i / heads / queries;
    const int64_t kv = head / (heads / kv_heads);
    const int64_t cache = ((row * caches + query / in.block) * kv_heads + kv) * codes;
    std::vector<double> logits;
    for (int64_t s = 0; s < codes; ++s) {
      double logit = std::log(values(in.counts)[cache + s]);  // -inf for none
      for (int64_t d = 0; d < size; ++d) {
        const double u = in.u.defined() ? values(in.u)[head * size + d] : 0;
        logit += (values(in.q)[i * size + d] + u) * values(in.codebook)[(kv * codes + s) * size + d];
      }
      logits.push_back(logit);
    }
    body(i, (row * heads + head) * queries + query, head, kv * codes, cache - row * kv_heads * codes, logits);
  }
}

Tensors code_attention_reference(const ops::CodeAttentionInputs& in, const Tensor& out, const Tensor& lse) {
  const int64_t width = out.dim(3);
  for_each_query(in, [&](int64_t i, int64_t l, int64_t, int64_t, int64_t cache, const std::vector<double>& logits) {
    const double before = values(lse)[l];
    double top = before;
    for (const double logit : logits) top = std::max(top, logit);
    if (std::isinf(top)) return;
    double sum = std::exp(before - top);
    for (const double logit : logits) sum += std::exp(logit - top);
    for (int64_t d = 0; d < width; ++d) {
      double& y = values(out)[i * width + d];
      y *= std::exp(before - top) / sum;
      for (size_t s = 0; s < logits.size(); ++s) {
        y += std::exp(logits[s] - top) / sum * values(in.means)[(cache + static_cast<int64_t>(s)) * width + d];
      }
    }
    values(lse)[l] = top + std::log(sum);
  });
  return {out, lse};
}

// dq, du, dmeans after the inputs of the forward pass, dout, delta, lse.
Tensors code_attention_backward_reference(const ops::CodeAttentionInputs& in, const Tensors& t) {
  const Tensor &dq = t[5], &du = t[6], &dmeans = t[7], &dout = t[8], &lse = t[10];
  const int64_t width = dout.dim(3), size = in.q.dim(3);
  for_each_query(
      in, [&](int64_t i, int64_t l, int64_t head, int64_t codeword, int64_t cache, const std::vector<double>& logits) {
        const double delta = values(t[9])[l];
        for (size_t s = 0; s < logits.size(); ++s) {
          if (std::isinf(logits[s])) continue;
          const double p = std::exp(logits[s] - values(lse)[l]);
          const int64_t at = cache + static_cast<int64_t>(s);
          double dp = 0;
          for (int64_t d = 0; d < width; ++d) {
            dp += values(dout)[i * width + d] * values(in.means)[at * width + d];
            if (dmeans.defined()) values(dmeans)[at * width + d] += p * values(dout)[i * width + d];
          }
          const double ds = p * (dp - delta);
          for (int64_t d = 0; d < size; ++d) {
            const double term = ds * values(in.codebook)[(codeword + static_cast<int64_t>(s)) * size + d];
            values(dq)[i * size + d] += term;
            if (du.defined()) values(du)[head * size + d] += term;
          }
        }
      });
  Tensors found{dq};
  for (const Tensor& gradient : {du, dmeans}) {
    if (gradient.defined()) found.push_back(gradient);
  }
  return found;
}

void add_code_attention(std::vector<OpCase>& cases, RandomTensors& random, const CodeForm& f) {
  const int64_t caches = (f.queries + f.block - 1) / f.block + 1;
  const Shape per_query{f.rows, f.queries, f.heads, f.value_size};
  Tensors inputs{random.normal({f.rows, f.queries, f.heads, f.size}, f.scale),
                 f.u ? random.normal({f.heads, f.size}, std::min(1.0, f.scale)) : Tensor(),
                 random.normal({f.kv_heads, f.codes, f.size}),
                 random.normal({f.rows, caches - 1, f.kv_heads, f.codes, f.value_size}),
                 whole(random, {f.rows, caches, f.kv_heads, f.codes}, 0, f.largest_count)};
  // An unused codeword has mean 0, and the first cache of the first row holds nothing.
  for (int64_t i = 0; i < f.kv_heads * f.codes; ++i) values(inputs[4])[i] = 0;
  for (int64_t i = 0; i < inputs[3].numel(); ++i) {
    const int64_t line = i / f.value_size;
    const int64_t of_row = f.kv_heads * f.codes;
    if (values(inputs[4])[line + line / of_row / (caches - 1) * of_row] == 0) values(inputs[3])[i] = 0;
  }
  inputs.push_back(f.first ? Tensor::zeros(per_query, DType::f64) : random.normal(per_query));
  inputs.push_back(random.normal({f.rows, f.heads, f.queries}));
  if (f.first) std::fill_n(values(inputs[6]), inputs[6].numel(), -std::numeric_limits<double>::infinity());
  const int64_t terms = f.size + f.codes;
  // The largest logits are some three standard deviations away from zero.
  const double amplification = std::max(1.0, f.scale > 1 ? 3 * f.scale * std::sqrt(f.size) : 1.0);
  const int64_t block = f.block;
  const bool empty_matters = f.first;
  // Tensor cores round q + u, codewords, means, probabilities and gradients of logits to bf16.
  const bool rounds = f.size % 8 == 0 && f.value_size % 8 == 0;
  const auto marked = [empty_matters](const Tensor& lse) {
    std::vector<double> found = values_of(lse);
    for (double& value : found) value = empty_matters && std::isinf(value) && value < 0 ? -1e3 : value;
    return Tensor::from(found, lse.shape());
  };
  add_operation(
      cases, "code_attention", f.name, inputs, terms,
      [=](const Tensors& t) {
        ops::code_attention(t[5], t[6], assembled(t, block));
        return Tensors{t[5], converted(marked(t[6]), t[6].dtype())};
      },
      [=](const Tensors& t) {
        const Tensors found = code_attention_reference(assembled(t, block), t[5], t[6]);
        return Tensors{found[0], marked(found[1])};
      },
      {1, 2, 4, 6}, amplification);
  if (rounds) cases.back().roundings = 5;
  // Gradients are those of out and lse as they were stored.
  const Tensors total = code_attention_reference(assembled(inputs, block), clone(inputs[5]), clone(inputs[6]));
  for (const bool all : {true, false}) {
    Tensors backward(inputs.begin(), inputs.begin() + 5);
    backward.push_back(random.normal(inputs[0].shape()));
    backward.push_back(all && f.u ? random.normal(inputs[1].shape()) : Tensor());
    backward.push_back(all ? Tensor::zeros(inputs[3].shape(), DType::f64) : Tensor());
    backward.push_back(random.normal(per_query));
    const Tensor delta = delta_of(backward.back(), total[0]);
    for (const Tensor& stored : {delta, total[1]})
      backward.push_back(converted(converted(stored, DType::f32), DType::f64));
    add_operation(
        cases, "code_attention_backward", f.name + (all ? "" : "_dq_only"), backward,
        terms + f.value_size + f.rows * f.queries,
        [=](const Tensors& t) {
          // Overwritten: what was there must not matter.
          if (t[7].defined()) ops::add(t[7], t[3], t[3], 1, 1);
          ops::code_attention_backward(t[5], t[6], t[7], t[8], t[9], t[10], assembled(t, block));
          Tensors found{t[5]};
          for (const size_t i : {6, 7}) {
            if (t[i].defined()) found.push_back(t[i]);
          }
          return found;
        },
        [=](const Tensors& t) { return code_attention_backward_reference(assembled(t, block), t); },
        {1, 2, 4, 6, 9, 10}, amplification);
    if (rounds) cases.back().roundings = 8;
  }
}

void add_code_attention_cases(std::vector<OpCase>& cases, RandomTensors& random) {
  // rows, queries, heads, key heads, sizes of keys and of values, codes, block
  const std::vector<CodeForm> forms{
      of_sizes("one", {1, 1, 1, 1, 1, 1, 1, 1}),
      of_sizes("odd", {2, 7, 2, 2, 3, 5, 6, 3}),
      of_sizes("one_code", {2, 7, 2, 2, 3, 5, 1, 3}),
      of_sizes("tokens", {2, 7, 2, 2, 3, 5, 6, 1}, {.u = false}),
      of_sizes("first", {2, 7, 2, 2, 3, 5, 6, 3}, {.first = true}),
      of_sizes("empty", {2, 7, 2, 2, 3, 5, 6, 3}, {.largest_count = 1}),
      of_sizes("grouped_heads", {1, 7, 6, 2, 3, 5, 9, 4}),
      of_sizes("one_key_head", {2, 7, 3, 1, 5, 5, 6, 3}, {.u = false}),
      of_sizes("long_block", {1, 70, 1, 1, 3, 5, 6, 150}),
      // More than one block of 64 queries and of 128 codewords, none of them full; wide heads.
      of_sizes("blocks", {1, 150, 1, 1, 35, 70, 150, 75}),
      of_sizes("wide", {1, 6, 2, 1, 133, 136, 64, 4}, {.scale = 0.1}),
      of_sizes("large_counts", {2, 7, 2, 2, 3, 5, 6, 3}, {.largest_count = 2000000}),
      of_sizes("large_logits", {2, 7, 2, 2, 3, 5, 33, 3}, {.scale = 20}),
      // In bf16 on tensor cores: whole chunks of 8 features, slices of 64, 128 and 256 of values, tiles of 64 queries
      // and of 64 or 128 codewords of which none is full.
      of_sizes("chunks_one", {1, 1, 1, 1, 8, 8, 1, 1}),
      of_sizes("chunks", {2, 7, 2, 2, 8, 24, 6, 3}, {.scale = 0.5}),
      of_sizes("chunks_first", {2, 7, 2, 2, 8, 8, 6, 3}, {.first = true, .scale = 0.5}),
      of_sizes("chunks_empty", {2, 7, 2, 2, 16, 8, 6, 3}, {.largest_count = 1}),
      of_sizes("chunks_grouped", {1, 7, 6, 2, 24, 136, 9, 4}, {.largest_count = 2000000, .scale = 0.3}),
      of_sizes("chunks_narrow", {1, 150, 2, 1, 64, 64, 150, 75}, {.u = false, .scale = 0.2}),
      of_sizes("chunks_blocks", {1, 100, 1, 1, 128, 128, 70, 70}, {.scale = 0.1}),
      of_sizes("chunks_wide", {2, 66, 1, 1, 40, 584, 130, 200}, {.scale = 0.2}),
  };
  for (const CodeForm& form : forms) add_code_attention(cases, random, form);
}

}  // namespace

void add_vq_attention_cases(std::vector<OpCase>& cases) {
  RandomTensors random(62);
  add_cache_cases(cases, random);
  add_code_attention_cases(cases, random);
}

}  // namespace quire::test
