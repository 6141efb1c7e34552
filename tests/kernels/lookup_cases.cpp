// Embedding, cross-entropy, tables by distance, scales per head.
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/position.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

using Tensors = std::vector<Tensor>;

int64_t id_at(const Tensor& ids, int64_t i) {
  return ids.data<int32_t>()[i];
}

// Makes an embedding case with ids from `min_id` on; those below zero have no row.
void add_embedding(std::vector<OpCase>& cases, RandomTensors& random, int64_t vocabulary, int64_t width, int64_t count,
                   int64_t min_id = 0) {
  const std::string size = std::to_string(vocabulary) + "x" + std::to_string(width) + "x" + std::to_string(count) +
                           (min_id < 0 ? "_absent" : "");
  const Tensor ids = random.integers({count}, min_id, vocabulary);
  cases.push_back({"embedding",
                   size,
                   {random.normal({vocabulary, width}), ids},
                   [=](const Tensors& in) {
                     const Tensor out = beside(in[0], {count, width});
                     ops::embedding(out, in[0], in[1], 1.7);
                     return Tensors{out};
                   },
                   [=](const Tensors& in) {
                     const Tensor out = Tensor::zeros({count, width}, DType::f64);
                     for (int64_t i = 0; i < out.numel(); ++i) {
                       if (id_at(in[1], i / width) < 0) continue;
                       values(out)[i] = 1.7 * values(in[0])[id_at(in[1], i / width) * width + i % width];
                     }
                     return Tensors{out};
                   }});
  cases.push_back({"embedding_backward",
                   size,
                   {random.normal({vocabulary, width}), random.normal({count, width}), ids},
                   [](const Tensors& in) {
                     ops::embedding_backward(in[0], in[1], in[2], 1.7);
                     return Tensors{in[0]};
                   },
                   [=](const Tensors& in) {
                     for (int64_t i = 0; i < in[1].numel(); ++i) {
                       if (id_at(in[2], i / width) < 0) continue;
                       values(in[0])[id_at(in[2], i / width) * width + i % width] += 1.7 * values(in[1])[i];
                     }
                     return Tensors{in[0]};
                   },
                   count,
                   1,
                   {0}});
}

void add_tables(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const auto& [entries, width, clamp, base] :
       {std::tuple{1, 2, 0, 1e4}, {13, 6, 0, 1e5}, {301, 34, 0, 1e4}, {29, 8, 7, 1e4}}) {
    cases.push_back({"sinusoid",
                     std::to_string(entries) + "x" + std::to_string(width) + (clamp > 0 ? "_clamped" : ""),
                     {random.normal({entries, width})},
                     [limit = clamp, b = base](const Tensors& in) {
                       ops::sinusoid(in[0], limit, b);
                       return Tensors{in[0]};
                     },
                     [n = entries, e = width, limit = clamp, b = base](const Tensors& in) {
                       for (int64_t i = 0; i < in[0].numel(); ++i) {
                         const int64_t distance = n - 1 - i / e;
                         const int64_t d = limit > 0 ? std::min<int64_t>(distance, limit) : distance;
                         const int64_t column = i % e;
                         const double w = std::pow(b, -2.0 * static_cast<double>(column % (e / 2)) / e);
                         const double angle = static_cast<double>(d) * w;
                         values(in[0])[i] = column < e / 2 ? std::sin(angle) : std::cos(angle);
                       }
                       return Tensors{in[0]};
                     }});
  }
  RandomTensors positions(131);
  for (const auto& [rows, width, largest] : {std::tuple{1, 2, 1}, {31, 34, 100000}, {0, 4, 1}}) {
    cases.push_back({"sinusoid_at",
                     std::to_string(rows) + "x" + std::to_string(width),
                     {positions.normal({rows, width}), positions.integers({rows}, 0, largest)},
                     [](const Tensors& in) {
                       ops::sinusoid_at(in[0], in[1], 1e5);
                       return Tensors{in[0]};
                     },
                     [e = width](const Tensors& in) {
                       for (int64_t i = 0; i < in[0].numel(); ++i) {
                         const int64_t column = i % e;
                         const double w = std::pow(1e5, -2.0 * static_cast<double>(column % (e / 2)) / e);
                         const double angle = static_cast<double>(id_at(in[1], i / e)) * w;
                         values(in[0])[i] = column < e / 2 ? std::sin(angle) : std::cos(angle);
                       }
                       return Tensors{in[0]};
                     }});
  }
  for (const auto& [heads, buckets, count] : {std::tuple{1, 1, 1}, {3, 8, 29}, {2, 5, 0}}) {
    const std::string size = std::to_string(heads) + "x" + std::to_string(buckets) + "x" + std::to_string(count);
    const Tensor index = random.integers({count}, 0, buckets);
    cases.push_back({"gather_columns",
                     size,
                     {random.normal({heads, buckets}), index},
                     [](const Tensors& in) {
                       const Tensor out = beside(in[0], {in[0].dim(0), in[1].numel()});
                       ops::gather_columns(out, in[0], in[1]);
                       return Tensors{out};
                     },
                     [b = buckets, n = count](const Tensors& in) {
                       const Tensor out = Tensor::zeros({in[0].dim(0), n}, DType::f64);
                       for (int64_t i = 0; i < out.numel(); ++i) {
                         values(out)[i] = values(in[0])[i / n * b + id_at(in[1], i % n)];
                       }
                       return Tensors{out};
                     },
                     0,
                     1,
                     {0}});
    cases.push_back({"gather_columns_backward",
                     size,
                     {random.normal({heads, buckets}), random.normal({heads, count}), index},
                     [](const Tensors& in) {
                       ops::gather_columns_backward(in[0], in[1], in[2]);
                       return Tensors{in[0]};
                     },
                     [b = buckets, n = count](const Tensors& in) {
                       for (int64_t i = 0; i < in[1].numel(); ++i) {
                         values(in[0])[i / n * b + id_at(in[2], i % n)] += values(in[1])[i];
                       }
                       return Tensors{in[0]};
                     },
                     count + 1,
                     1,
                     {0, 1}});
  }
}

void add_scale_heads(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{5, 3, 7}, Shape{331, 2, 29}, Shape{67, 3, 48}}) {
    const int64_t heads = shape[1];
    const int64_t size = shape[2];
    const std::string name = std::to_string(shape.numel());
    const Tensor scales = random.normal({heads});  // some are negative
    cases.push_back({"scale_heads",
                     name,
                     {random.normal(shape), scales},
                     [](const Tensors& in) {
                       const Tensor out = like(in[0]);
                       ops::scale_heads(out, in[0], in[1]);
                       return Tensors{out};
                     },
                     [=](const Tensors& in) {
                       const Tensor out = like(in[0]);
                       for (int64_t i = 0; i < out.numel(); ++i) {
                         values(out)[i] = values(in[0])[i] * std::abs(values(in[1])[i / size % heads]);
                       }
                       return Tensors{out};
                     },
                     1,
                     1,
                     {1}});
    cases.push_back({"scale_heads_backward",
                     name,
                     {random.normal(shape), random.normal(shape), scales, random.normal({heads})},
                     [](const Tensors& in) {
                       const Tensor dx = like(in[0]);
                       const Tensor ds = like(in[2]);
                       ops::scale_heads_backward(dx, ds, in[0], in[1], in[2], false);
                       ops::scale_heads_backward(dx, in[3], in[0], in[1], in[2], true);
                       return Tensors{dx, ds, in[3]};
                     },
                     [=](const Tensors& in) {
                       const Tensor dx = like(in[0]);
                       const Tensor ds = like(in[2]);
                       for (int64_t i = 0; i < dx.numel(); ++i) {
                         const int64_t h = i / size % heads;
                         const double s = values(in[2])[h];
                         values(dx)[i] = std::abs(s) * values(in[0])[i];
                         const double term = (s < 0 ? -1 : 1) * values(in[0])[i] * values(in[1])[i];
                         values(ds)[h] += term;
                         values(in[3])[h] += term;
                       }
                       return Tensors{dx, ds, in[3]};
                     },
                     shape[0] * size,
                     1,
                     {2, 3}});
  }
}

}  // namespace

void add_lookup_cases(std::vector<OpCase>& cases) {
  RandomTensors random(5);
  add_embedding(cases, random, 1, 1, 1);
  add_embedding(cases, random, 11, 7, 29);
  add_embedding(cases, random, 5, 3, 0);
  add_embedding(cases, random, 17, 129, 301);
  add_embedding(cases, random, 3, 259, 70);
  add_embedding(cases, random, 2, 24, 403);  // long runs of one token
  RandomTensors absent(57);
  add_embedding(cases, absent, 1, 3, 70, -40);  // nearly all, in long runs
  add_embedding(cases, absent, 7, 129, 301, -3);
  add_embedding(cases, absent, 5, 8, 1, -1);
  add_tables(cases, random);
  add_scale_heads(cases, random);
}

}  // namespace quire::test
