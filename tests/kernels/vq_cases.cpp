// Transformer-VQ: nearest codewords, statistics, caches of values and attention to them.
#include "kernels/vq.h"

#include <cmath>
#include <limits>

#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

using Tensors = std::vector<Tensor>;

int32_t at(const Tensor& integers, int64_t i) {
  return integers.data<int32_t>()[i];
}

// Not-a-number as -1, which tests can compare.
Tensor nan_marked(const Tensor& tensor) {
  std::vector<double> marked = values_of(tensor);
  for (double& value : marked) value = std::isnan(value) ? -1 : value;
  return converted(Tensor::from(marked, tensor.shape()), tensor.dtype());
}

// Codes as numbers that are compared like others.
Tensor numbers(const Tensor& integers) {
  const std::vector<int32_t> from = integers.to_vector<int32_t>();
  return Tensor::from(std::vector<double>(from.begin(), from.end()), integers.shape());
}

// Whole numbers in [low, high), as counts are kept.
Tensor whole(RandomTensors& random, const Shape& shape, int64_t low, int64_t high) {
  return numbers(random.integers(shape, low, high));
}

// --- nearest codewords

Tensors nearest_reference(const Tensors& in) {
  const Tensor& x = in[0];
  const int64_t count = x.dim(0), heads = x.dim(1), size = x.dim(2), codes = in[1].dim(1);
  const Tensor found = Tensor::zeros({count, heads}, DType::i32);
  const Tensor quantized = like(x);
  const Tensor error = beside(x, {count, heads});
  for (int64_t i = 0; i < count * heads; ++i) {
    const auto distance = [&](int64_t s) {
      double sum = 0;
      for (int64_t d = 0; d < size; ++d) {
        const double difference = values(x)[i * size + d] - values(in[1])[(i % heads * codes + s) * size + d];
        sum += difference * difference;
      }
      return sum;
    };
    int32_t best = 0;
    for (int32_t s = 1; s < codes; ++s) best = distance(s) < distance(best) ? s : best;
    found.data<int32_t>()[i] = best;
    values(error)[i] = std::isnan(distance(best)) ? -1 : distance(best);
    for (int64_t d = 0; d < size; ++d) {
      values(quantized)[i * size + d] = values(in[1])[(i % heads * codes + best) * size + d];
    }
  }
  return {numbers(found), quantized, error};
}

void add_nearest(std::vector<OpCase>& cases, const std::string& name, const Tensor& x, const Tensor& codebook) {
  cases.push_back({"nearest_code",
                   name,
                   {x, codebook},
                   [](const Tensors& in) {
                     const Shape per_head{in[0].dim(0), in[0].dim(1)};
                     const Tensor codes = Tensor::zeros(per_head, DType::i32, in[0].device());
                     const Tensor quantized = like(in[0]);
                     const Tensor error = wide_beside(in[0], per_head);
                     ops::nearest_code(codes, quantized, error, in[0], in[1]);
                     return Tensors{numbers(codes), quantized, nan_marked(error)};
                   },
                   nearest_reference,
                   x.dim(2),
                   1,
                   {1}});
}

void add_nearest_cases(std::vector<OpCase>& cases, RandomTensors& random) {
  const auto vectors = [&](const Shape& shape) { return random.normal(shape); };
  add_nearest(cases, "one", vectors({1, 1, 1}), vectors({1, 1, 1}));
  add_nearest(cases, "one_code", vectors({5, 2, 3}), vectors({2, 1, 3}));
  add_nearest(cases, "odd", vectors({67, 3, 5}), vectors({3, 13, 5}));
  add_nearest(cases, "blocks", vectors({131, 1, 37}), vectors({1, 300, 37}));
  // Coordinates are halves: distances are exact, and many are equal. The last codeword is the first once more.
  const Tensor halves = random.normal({40, 2, 2});
  const Tensor grid = random.normal({2, 9, 2});
  for (const Tensor& tensor : {halves, grid}) {
    for (int64_t i = 0; i < tensor.numel(); ++i) values(tensor)[i] = std::round(2 * values(tensor)[i]) / 2;
  }
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t d = 0; d < 2; ++d) values(grid)[(h * 9 + 8) * 2 + d] = values(grid)[h * 9 * 2 + d];
  }
  add_nearest(cases, "ties", halves, grid);
  const Tensor broken = vectors({9, 2, 4});
  values(broken)[5 * 8 + 6] = std::nan("");
  add_nearest(cases, "nan", broken, vectors({2, 6, 4}));
}

void add_nearest_backward(std::vector<OpCase>& cases, RandomTensors& random, const std::string& name,
                          const Shape& shape, bool straight_through) {
  cases.push_back({"nearest_code_backward",
                   name,
                   {straight_through ? random.normal(shape) : Tensor(), random.normal(shape), random.normal(shape),
                    random.flags({shape[0]})},
                   [](const Tensors& in) {
                     const Tensor dx = like(in[1]);
                     ops::nearest_code_backward(dx, in[0], in[1], in[2], in[3], f64_beside(in[1], {0.3}));
                     return Tensors{dx};
                   },
                   [](const Tensors& in) {
                     const Tensor dx = like(in[1]);
                     const int64_t width = dx.dim(1) * dx.dim(2);
                     for (int64_t i = 0; i < dx.numel(); ++i) {
                       const bool counts = in[3].data<uint8_t>()[i / width] != 0;
                       values(dx)[i] = (in[0].defined() ? values(in[0])[i] : 0) +
                                       (counts ? 2 * 0.3 * (values(in[1])[i] - values(in[2])[i]) : 0);
                     }
                     return Tensors{dx};
                   },
                   2});
}

// --- statistics and codebooks

Tensors statistics_reference(const Tensors& in) {
  const Tensor& x = in[2];
  const int64_t heads = x.dim(1), size = x.dim(2), codes = in[0].dim(1);
  for (int64_t i = 0; i < x.dim(0) * heads; ++i) {
    if (in[4].data<uint8_t>()[i / heads] == 0 || at(in[3], i) < 0) continue;
    const int64_t s = i % heads * codes + at(in[3], i);
    values(in[0])[s] += 1;
    for (int64_t d = 0; d < size; ++d) values(in[1])[s * size + d] += values(x)[i * size + d];
  }
  return {in[0], in[1]};
}

void add_statistics(std::vector<OpCase>& cases, RandomTensors& random, const std::string& name, const Shape& shape,
                    int64_t codes, const Tensor& found, const Tensor& mask) {
  cases.push_back({"code_statistics",
                   name,
                   {whole(random, {shape[1], codes}, 0, 5), random.normal({shape[1], codes, shape[2]}),
                    random.normal(shape), found, mask},
                   [](const Tensors& in) {
                     ops::code_statistics(in[0], in[1], in[2], in[3], in[4]);
                     return Tensors{in[0], in[1]};
                   },
                   statistics_reference,
                   shape[0],
                   1,
                   {0, 1}});
}

void add_gather(std::vector<OpCase>& cases, RandomTensors& random, const Shape& shape, int64_t codes) {
  cases.push_back({"gather_vectors",
                   std::to_string(shape[0]),
                   {random.normal({shape[1], codes, shape[2]}), random.normal(shape),
                    random.integers({shape[1], codes}, -1, shape[0])},
                   [](const Tensors& in) {
                     ops::gather_vectors(in[0], in[1], in[2]);
                     return Tensors{in[0]};
                   },
                   [codes](const Tensors& in) {
                     const int64_t heads = in[1].dim(1), size = in[1].dim(2);
                     for (int64_t i = 0; i < heads * codes; ++i) {
                       if (at(in[2], i) < 0) continue;
                       for (int64_t d = 0; d < size; ++d) {
                         values(in[0])[i * size + d] += values(in[1])[(at(in[2], i) * heads + i / codes) * size + d];
                       }
                     }
                     return Tensors{in[0]};
                   },
                   2,
                   1,
                   {0}});
}

void add_lookup(std::vector<OpCase>& cases, RandomTensors& random, const Shape& shape, int64_t codes) {
  cases.push_back({"lookup_codes",
                   std::to_string(shape[0]),
                   {random.normal(shape), random.integers({shape[0], shape[1]}, -1, codes + 1),
                    random.normal({shape[1], codes, shape[2]})},
                   [](const Tensors& in) {
                     ops::lookup_codes(in[0], in[1], in[2]);
                     return Tensors{in[0]};
                   },
                   [codes](const Tensors& in) {
                     const int64_t heads = in[0].dim(1), size = in[0].dim(2);
                     for (int64_t i = 0; i < in[0].numel(); ++i) {
                       const int64_t code = at(in[1], i / size);
                       const int64_t row = i / size % heads * codes + code;
                       values(in[0])[i] = code < 0 || code >= codes ? 0 : values(in[2])[row * size + i % size];
                     }
                     return Tensors{in[0]};
                   },
                   1,
                   1,
                   {2}});
}

void add_update(std::vector<OpCase>& cases, RandomTensors& random, const std::string& name, const Shape& shape,
                const ops::CodebookUpdate& options, bool seeds, bool applies = true) {
  const Shape per_code{shape[0], shape[1]};
  const double applied = applies ? 1 : 0;
  cases.push_back(
      {"codebook_update",
       name,
       {random.normal(shape), whole(random, per_code, 0, 4), random.normal(shape), whole(random, per_code, 0, 4),
        seeds ? random.normal(shape) : Tensor(), seeds ? whole(random, per_code, 0, 2) : Tensor()},
       [=](const Tensors& in) {
         ops::codebook_update(in[0], in[1], in[2], in[3], in[4], in[5], f64_beside(in[0], {1, applied}), options);
         return Tensors{in[0], in[1]};
       },
       [=](const Tensors& in) {
         for (int64_t i = 0; applies && i < in[1].numel(); ++i) {
           double& n = values(in[1])[i];
           n = options.decay * n + (1 - options.decay) * values(in[3])[i];
           const bool seeded = in[5].defined() && values(in[5])[i] != 0 && (options.reseed_all || n < options.reseed);
           if (seeded) n = 1;
           for (int64_t d = 0; d < shape[2]; ++d) {
             double& m = values(in[0])[i * shape[2] + d];
             const int64_t at = i * shape[2] + d;
             m = seeded ? values(in[4])[at] : options.decay * m + (1 - options.decay) * values(in[2])[at];
           }
         }
         return Tensors{in[0], in[1]};
       },
       applies ? 2 : 0,
       1,
       {0, 1, 2, 3, 4, 5}});
}

void add_codewords(std::vector<OpCase>& cases, RandomTensors& random, const std::string& name, const Shape& shape,
                   double floor, double smoothing) {
  cases.push_back({"codewords",
                   name,
                   {random.normal(shape), whole(random, {shape[0], shape[1]}, 0, 4)},
                   [=](const Tensors& in) {
                     const Tensor codebook = like(in[0]);
                     ops::codewords(codebook, in[0], in[1], floor, smoothing);
                     return Tensors{codebook};
                   },
                   [=](const Tensors& in) {
                     const Tensor codebook = like(in[0]);
                     for (int64_t h = 0; h < shape[0]; ++h) {
                       const double* n = values(in[1]) + h * shape[1];
                       double total = 0;
                       for (int64_t s = 0; s < shape[1]; ++s) total += n[s];
                       for (int64_t s = 0; s < shape[1]; ++s) {
                         const double smooth = (n[s] + smoothing) / (total + shape[1] * smoothing) * total;
                         const double divisor = std::max(smoothing > 0 ? smooth : n[s], floor);
                         for (int64_t d = 0; d < shape[2]; ++d) {
                           const int64_t at = (h * shape[1] + s) * shape[2] + d;
                           values(codebook)[at] = values(in[0])[at] / divisor;
                         }
                       }
                     }
                     return Tensors{codebook};
                   },
                   shape[1],
                   1,
                   {0, 1}});
}

void add_codebook_cases(std::vector<OpCase>& cases, RandomTensors& random) {
  add_nearest_backward(cases, random, "one", {1, 1, 1}, true);
  add_nearest_backward(cases, random, "straight_through", {23, 3, 5}, true);
  add_nearest_backward(cases, random, "commitment", {23, 3, 5}, false);
  for (const Shape& shape : {Shape{1, 1}, Shape{37, 3}, Shape{1500, 2}}) {
    cases.push_back({"masked_sum",
                     std::to_string(shape.numel()),
                     {random.normal(shape), random.flags({shape[0]})},
                     [](const Tensors& in) {
                       const Tensor total = f64_beside(in[0], {7});
                       ops::masked_sum(total, in[0], in[1]);
                       return Tensors{total};
                     },
                     [](const Tensors& in) {
                       double sum = 0;
                       for (int64_t i = 0; i < in[0].numel(); ++i) {
                         if (in[1].data<uint8_t>()[i / in[0].dim(1)] != 0) sum += values(in[0])[i];
                       }
                       return Tensors{f64_beside(in[0], {sum})};
                     },
                     shape.numel(),
                     1,
                     {0}});
  }
  const auto flags = [&](int64_t count) { return random.flags({count}); };
  const auto zeros = [](const Shape& shape, DType type) { return Tensor::zeros(shape, type); };
  add_statistics(cases, random, "one", {1, 1, 1}, 1, zeros({1, 1}, DType::i32), flags(1));
  add_statistics(cases, random, "odd", {97, 3, 5}, 13, random.integers({97, 3}, -1, 13), flags(97));
  add_statistics(cases, random, "one_code", {300, 2, 35}, 7, zeros({300, 2}, DType::i32), flags(300));
  add_statistics(cases, random, "masked", {9, 2, 3}, 4, random.integers({9, 2}, 0, 4), zeros({9}, DType::u8));
  add_gather(cases, random, {1, 1, 1}, 1);
  add_gather(cases, random, {29, 3, 5}, 13);
  add_lookup(cases, random, {1, 1, 1}, 1);
  add_lookup(cases, random, {41, 3, 5}, 7);
  add_update(cases, random, "one", {1, 1, 1}, {}, false);
  add_update(cases, random, "odd", {3, 13, 5}, {.decay = 0.9}, false);
  add_update(cases, random, "batch_alone", {2, 7, 35}, {.decay = 0}, true);
  add_update(cases, random, "reseed", {2, 17, 5}, {.decay = 0.9, .reseed = 1.5}, true);
  add_update(cases, random, "reseed_all", {2, 17, 5}, {.decay = 0.9, .reseed_all = true}, true);
  add_update(cases, random, "not_applied", {2, 7, 5}, {.reseed = 9}, true, false);
  add_codewords(cases, random, "one", {1, 1, 1}, 0.01, 0);
  add_codewords(cases, random, "floor", {3, 13, 5}, 0.01, 0);
  add_codewords(cases, random, "smoothed", {2, 300, 35}, 0.01, 0.1);
}

// --- caches

struct CacheForm {
  std::string name = {};
  int64_t rows = 2;
  int64_t tokens = 11;
  int64_t kv_heads = 2;
  int64_t codes = 5;
  int64_t value_size = 3;
  int64_t slots = 4;
  // Of each row, one entry a cache.
  std::vector<std::vector<int32_t>> origin = {};
  std::vector<std::vector<int32_t>> limit = {};
  bool one_code = false;
  int64_t largest_count = 4;
};

Tensor joined_rows(const std::vector<std::vector<int32_t>>& rows) {
  std::vector<int32_t> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return Tensor::from(all, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
}

ops::CodeCacheInputs assembled(const Tensors& t, ops::CodeReduction reduction) {
  return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], reduction};
}

// Where a token of cache b lies: in v, or in the window.
struct CacheReader {
  ops::CodeCacheInputs in;
  int64_t heads = in.v.dim(2), tokens = in.v.dim(1), width = in.v.dim(3), codes = in.mean.dim(2);
  int64_t caches = in.origin.dim(1), slots = in.window_v.defined() ? in.window_v.dim(1) : 0;

  // Calls body(cache, position, code, index of the vector in v or window_v).
  template <typename Body>
  void for_each_token(Body&& body) const {
    for (int64_t r = 0; r < in.v.dim(0); ++r) {
      for (int64_t b = 0; b < caches; ++b) {
        for (int64_t p = at(in.origin, r * caches + b); p < at(in.limit, r * caches + b); ++p) {
          for (int64_t h = 0; h < heads; ++h) {
            const int64_t line = p >= 0 ? (r * tokens + p) * heads + h
                                        : (r * slots + (at(in.window_head, r) + p + slots) % slots) * heads + h;
            const int32_t code = at(p >= 0 ? in.codes : in.window_codes, line);
            if (code >= 0) body(((r * caches + b) * heads + h) * codes + code, p, line);
          }
        }
      }
    }
  }
};

Tensors caches_reference(const ops::CodeCacheInputs& in) {
  const CacheReader read{in};
  const Tensor means = beside(in.v, {in.v.dim(0), read.caches, read.heads, read.codes, read.width});
  const Tensor counts = beside(in.v, {in.v.dim(0), read.caches, read.heads, read.codes});
  for (int64_t i = 0; i < counts.numel(); ++i) {
    const int64_t per_row = read.heads * read.codes;
    if (at(in.origin, i / per_row) > 0) continue;
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

Tensors caches_backward_reference(const ops::CodeCacheInputs& in, const Tensor& dv, const Tensor& dmeans,
                                  const Tensor& counts) {
  const CacheReader read{in};
  read.for_each_token([&](int64_t cache, int64_t position, int64_t line) {
    for (int64_t d = 0; position >= 0 && d < read.width; ++d) {
      values(dv)[line * read.width + d] += values(dmeans)[cache * read.width + d] / values(counts)[cache];
    }
  });
  return {dv};
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
  const Tensor counted = caches_reference(assembled(inputs, {}))[1];
  for (const auto& [reduction, name] : {std::pair{ops::CodeReduction::serial, "serial"},
                                        {ops::CodeReduction::matmul, "matmul"},
                                        {ops::CodeReduction::scan, "scan"}}) {
    const ops::CodeReduction by = reduction;
    cases.push_back({"code_caches",
                     f.name + "_" + name,
                     inputs,
                     [=](const Tensors& t) {
                       const Tensor means = wide_beside(t[0], {f.rows, caches, f.kv_heads, f.codes, f.value_size});
                       const Tensor counts = wide_beside(t[0], {f.rows, caches, f.kv_heads, f.codes});
                       ops::code_caches(means, counts, assembled(t, by));
                       return Tensors{means, counts};
                     },
                     [=](const Tensors& t) { return caches_reference(assembled(t, by)); },
                     terms,
                     1,
                     {5, 6}});
  }
  Tensors backward = inputs;
  backward.push_back(random.normal(inputs[0].shape()));
  backward.push_back(random.normal({f.rows, caches, f.kv_heads, f.codes, f.value_size}));
  backward.push_back(counted);
  cases.push_back({"code_caches_backward",
                   f.name,
                   backward,
                   [](const Tensors& t) {
                     ops::code_caches_backward(t[9], t[10], t[11], assembled(t, {}));
                     return Tensors{t[9]};
                   },
                   [](const Tensors& t) { return caches_backward_reference(assembled(t, {}), t[9], t[10], t[11]); },
                   caches,
                   1,
                   {5, 6, 10, 11}});
}

void add_cache_cases(std::vector<OpCase>& cases, RandomTensors& random) {
  const std::vector<CacheForm> forms{
      {.name = "one",
       .rows = 1,
       .tokens = 1,
       .kv_heads = 1,
       .codes = 1,
       .value_size = 1,
       .slots = 0,
       .origin = {{0, 0}},
       .limit = {{0, 1}}},
      {.name = "window", .origin = {{-4, -4, -4, -4}, {-2, -2, -2, -2}}, .limit = {{-4, 0, 4, 7}, {-3, -1, 3, 9}}},
      // Nothing in a row's caches, and documents that begin within another.
      {.name = "documents",
       .rows = 3,
       .tokens = 13,
       .codes = 7,
       .value_size = 5,
       .origin = {{0, 0, 0, 0, 0}, {-3, -3, 4, 4, 9}, {-1, 2, 2, 2, 11}},
       .limit = {{-4, -4, 0, 0, 0}, {-3, -1, 3, 8, 13}, {0, 2, 5, 7, 11}}},
      {.name = "one_code",
       .rows = 1,
       .tokens = 90,
       .kv_heads = 1,
       .codes = 9,
       .value_size = 37,
       .slots = 0,
       .origin = {{0, 0, 0}},
       .limit = {{0, 30, 90}},
       .one_code = true},
      {.name = "many_blocks",
       .rows = 2,
       .tokens = 40,
       .kv_heads = 1,
       .codes = 3,
       .value_size = 2,
       .slots = 3,
       .origin = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {-3, -3, -3, -3, -3, 11, 11, 11, 11, 11, 11, 11}},
       .limit = {{0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33}, {-3, 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 40}}},
      {.name = "large_counts",
       .rows = 1,
       .tokens = 8,
       .codes = 40,
       .value_size = 70,
       .slots = 2,
       .origin = {{-2, -2, -2}},
       .limit = {{-2, 2, 8}},
       .largest_count = 2000000},
  };
  for (const CacheForm& form : forms) add_caches(cases, random, form);
}

// --- attention to caches

struct CodeForm {
  std::string name = {};
  int64_t rows = 2;
  int64_t queries = 7;
  int64_t heads = 2;
  int64_t kv_heads = 2;
  int64_t size = 3;
  int64_t value_size = 5;
  int64_t codes = 6;
  int64_t block = 3;
  int64_t largest_count = 5;
  bool u = true;
  bool first = false;  // nothing was attended to before
  double scale = 1;    // of logits
};

ops::CodeAttentionInputs assembled(const Tensors& t, int64_t block) {
  return {t[0], t[1], t[2], t[3], t[4], block};
}

// Calls body(index of the query's vector, of its lse, head, first codeword of its cache, weights of codewords).
template <typename Body>
void for_each_query(const ops::CodeAttentionInputs& in, Body&& body) {
  const int64_t queries = in.q.dim(1), heads = in.q.dim(2), size = in.q.dim(3);
  const int64_t kv_heads = in.codebook.dim(0), codes = in.codebook.dim(1), caches = in.means.dim(1);
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
    body(i, (row * heads + head) * queries + query, head, kv * codes, cache, logits);
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

// dq, du, dmeans after the inputs of the forward pass, dout, out, lse.
Tensors code_attention_backward_reference(const ops::CodeAttentionInputs& in, const Tensors& t) {
  const Tensor &dq = t[5], &du = t[6], &dmeans = t[7], &dout = t[8], &out = t[9], &lse = t[10];
  const int64_t width = out.dim(3), size = in.q.dim(3);
  for_each_query(
      in, [&](int64_t i, int64_t l, int64_t head, int64_t codeword, int64_t cache, const std::vector<double>& logits) {
        double delta = 0;
        for (int64_t d = 0; d < width; ++d) delta += values(dout)[i * width + d] * values(out)[i * width + d];
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
                 f.u ? random.normal({f.heads, f.size}) : Tensor(), random.normal({f.kv_heads, f.codes, f.size}),
                 random.normal({f.rows, caches, f.kv_heads, f.codes, f.value_size}),
                 whole(random, {f.rows, caches, f.kv_heads, f.codes}, 0, f.largest_count)};
  // An unused codeword has mean 0, and the first cache of the first row holds nothing.
  for (int64_t i = 0; i < f.kv_heads * f.codes; ++i) values(inputs[4])[i] = 0;
  for (int64_t i = 0; i < inputs[3].numel(); ++i) {
    if (values(inputs[4])[i / f.value_size] == 0) values(inputs[3])[i] = 0;
  }
  inputs.push_back(f.first ? Tensor::zeros(per_query, DType::f64) : random.normal(per_query));
  inputs.push_back(random.normal({f.rows, f.heads, f.queries}));
  if (f.first) std::fill_n(values(inputs[6]), inputs[6].numel(), -std::numeric_limits<double>::infinity());
  const int64_t terms = f.size + f.codes;
  // The largest logits are some three standard deviations away from zero.
  const double amplification = std::max(1.0, f.scale > 1 ? 3 * f.scale * std::sqrt(f.size) : 1.0);
  const int64_t block = f.block;
  const bool empty_matters = f.first;
  const auto marked = [empty_matters](const Tensor& lse) {
    std::vector<double> found = values_of(lse);
    for (double& value : found) value = empty_matters && std::isinf(value) && value < 0 ? -1e3 : value;
    return Tensor::from(found, lse.shape());
  };
  cases.push_back({"code_attention",
                   f.name,
                   inputs,
                   [=](const Tensors& t) {
                     ops::code_attention(t[5], t[6], assembled(t, block));
                     return Tensors{t[5], converted(marked(t[6]), t[6].dtype())};
                   },
                   [=](const Tensors& t) {
                     const Tensors found = code_attention_reference(assembled(t, block), t[5], t[6]);
                     return Tensors{found[0], marked(found[1])};
                   },
                   terms,
                   amplification,
                   {1, 2, 3, 4, 6}});
  // Gradients are those of out and lse as they were stored.
  const Tensors total = code_attention_reference(assembled(inputs, block), clone(inputs[5]), clone(inputs[6]));
  for (const bool all : {true, false}) {
    Tensors backward(inputs.begin(), inputs.begin() + 5);
    backward.push_back(random.normal(inputs[0].shape()));
    backward.push_back(all && f.u ? random.normal(inputs[1].shape()) : Tensor());
    backward.push_back(all ? Tensor::zeros(inputs[3].shape(), DType::f64) : Tensor());
    backward.push_back(random.normal(per_query));
    for (const Tensor& stored : total) backward.push_back(converted(converted(stored, DType::f32), DType::f64));
    cases.push_back({"code_attention_backward",
                     f.name + (all ? "" : "_dq_only"),
                     backward,
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
                     terms + f.value_size + f.rows * f.queries,
                     amplification,
                     {1, 2, 3, 4, 6, 7, 10}});
  }
}

void add_code_attention_cases(std::vector<OpCase>& cases, RandomTensors& random) {
  const std::vector<CodeForm> forms{
      {.name = "one",
       .rows = 1,
       .queries = 1,
       .heads = 1,
       .kv_heads = 1,
       .size = 1,
       .value_size = 1,
       .codes = 1,
       .block = 1},
      {.name = "odd"},
      {.name = "one_code", .codes = 1},
      {.name = "tokens", .block = 1, .u = false},
      {.name = "first", .first = true},
      {.name = "empty", .largest_count = 1},
      {.name = "grouped_heads", .rows = 1, .heads = 6, .kv_heads = 2, .codes = 9, .block = 4},
      {.name = "one_key_head", .heads = 3, .kv_heads = 1, .size = 5, .u = false},
      {.name = "long_block", .rows = 1, .queries = 70, .heads = 1, .kv_heads = 1, .block = 150},
      // More than one block of 64 queries and of 128 codewords, none of them full; wide heads.
      {.name = "blocks",
       .rows = 1,
       .queries = 150,
       .heads = 1,
       .kv_heads = 1,
       .size = 35,
       .value_size = 70,
       .codes = 150,
       .block = 75},
      {.name = "wide",
       .rows = 1,
       .queries = 6,
       .heads = 2,
       .kv_heads = 1,
       .size = 133,
       .value_size = 136,
       .codes = 64,
       .block = 4,
       .scale = 0.1},
      {.name = "large_counts", .largest_count = 2000000},
      {.name = "large_logits", .codes = 33, .scale = 20},
  };
  for (const CodeForm& form : forms) add_code_attention(cases, random, form);
}

}  // namespace

void add_vq_cases(std::vector<OpCase>& cases) {
  RandomTensors random(61);
  add_nearest_cases(cases, random);
  add_codebook_cases(cases, random);
  add_cache_cases(cases, random);
  add_code_attention_cases(cases, random);
}

}  // namespace quire::test
