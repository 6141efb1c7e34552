// Transformer-VQ: nearest codewords, statistics of their use and codebooks.
#include "kernels/vq.h"

#include <cmath>
#include <limits>

#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

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
    values(error)[i] = distance(best);
    for (int64_t d = 0; d < size; ++d) {
      values(quantized)[i * size + d] = values(in[1])[(i % heads * codes + best) * size + d];
    }
  }
  return {recast(found, DType::f64), quantized, shown(error)};
}

void add_nearest(std::vector<OpCase>& cases, const std::string& name, const Tensor& x, const Tensor& codebook) {
  add_operation(cases, "nearest_code", name, {x, codebook}, x.dim(2),
                [](const Tensors& in) {
                  const Shape per_head{in[0].dim(0), in[0].dim(1)};
                  const Tensor codes = Tensor::zeros(per_head, DType::i32, in[0].device());
                  const Tensor quantized = like(in[0]);
                  const Tensor error = wide_beside(in[0], per_head);
                  ops::nearest_code(codes, quantized, error, in[0], in[1]);
                  return Tensors{recast(codes, DType::f64), quantized, shown(error)};
                },
                nearest_reference, {1});
}

void add_nearest_cases(std::vector<OpCase>& cases, RandomTensors& random) {
  const auto vectors = [&](const Shape& shape) { return random.normal(shape); };
  add_nearest(cases, "one", vectors({1, 1, 1}), vectors({1, 1, 1}));
  add_nearest(cases, "one_code", vectors({5, 2, 3}), vectors({2, 1, 3}));
  add_nearest(cases, "odd", vectors({67, 3, 5}), vectors({3, 13, 5}));
  add_nearest(cases, "blocks", vectors({131, 1, 37}), vectors({1, 300, 37}));
  // Tensor cores in bf16.
  add_nearest(cases, "chunks", vectors({67, 2, 24}), vectors({2, 150, 24}));
  add_nearest(cases, "chunks_widest", vectors({70, 1, 128}), vectors({1, 70, 128}));
  for (const int64_t size : {2, 8}) {
    const std::string kind = size == 8 ? "chunks_" : "";
    // Coordinates are halves: distances are exact, and many are equal. The last codeword is the first once more.
    const Tensor halves = random.normal({40, 2, size});
    const Tensor grid = random.normal({2, 9, size});
    for (const Tensor& tensor : {halves, grid}) {
      for (int64_t i = 0; i < tensor.numel(); ++i) values(tensor)[i] = std::round(2 * values(tensor)[i]) / 2;
    }
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t d = 0; d < size; ++d) values(grid)[(h * 9 + 8) * size + d] = values(grid)[h * 9 * size + d];
    }
    add_nearest(cases, kind + "ties", halves, grid);
    const Tensor broken = vectors({9, 2, 2 * size});
    values(broken)[5 * 4 * size + 3 * size] = std::nan("");
    add_nearest(cases, kind + "nan", broken, vectors({2, 6, 2 * size}));
  }
}

void add_nearest_backward(std::vector<OpCase>& cases, RandomTensors& random, const std::string& name,
                          const Shape& shape, bool straight_through) {
  add_operation(
      cases, "nearest_code_backward", name,
      {straight_through ? random.normal(shape) : Tensor(), random.normal(shape), random.normal(shape),
       random.flags({shape[0]})},
      2,
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
          values(dx)[i] =
              (in[0].defined() ? values(in[0])[i] : 0) + (counts ? 2 * 0.3 * (values(in[1])[i] - values(in[2])[i]) : 0);
        }
        return Tensors{dx};
      });
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
  add_operation(cases, "code_statistics", name,
                {whole(random, {shape[1], codes}, 0, 5), random.normal({shape[1], codes, shape[2]}),
                 random.normal(shape), found, mask},
                shape[0],
                [](const Tensors& in) {
                  ops::code_statistics(in[0], in[1], in[2], in[3], in[4]);
                  return Tensors{in[0], in[1]};
                },
                statistics_reference, {0, 1});
}

void add_gather(std::vector<OpCase>& cases, RandomTensors& random, const Shape& shape, int64_t codes) {
  add_in_place(
      cases, "gather_vectors", std::to_string(shape[0]),
      {random.normal({shape[1], codes, shape[2]}), random.normal(shape),
       random.integers({shape[1], codes}, -1, shape[0])},
      2, [](const Tensors& in) { ops::gather_vectors(in[0], in[1], in[2]); },
      [codes](const Tensors& in) {
        const int64_t heads = in[1].dim(1), size = in[1].dim(2);
        for (int64_t i = 0; i < heads * codes; ++i) {
          if (at(in[2], i) < 0) continue;
          for (int64_t d = 0; d < size; ++d) {
            values(in[0])[i * size + d] += values(in[1])[(at(in[2], i) * heads + i / codes) * size + d];
          }
        }
      },
      {0});
}

void add_lookup(std::vector<OpCase>& cases, RandomTensors& random, const Shape& shape, int64_t codes) {
  add_in_place(
      cases, "lookup_codes", std::to_string(shape[0]),
      {random.normal(shape), random.integers({shape[0], shape[1]}, -1, codes + 1),
       random.normal({shape[1], codes, shape[2]})},
      1, [](const Tensors& in) { ops::lookup_codes(in[0], in[1], in[2]); },
      [codes](const Tensors& in) {
        const int64_t heads = in[0].dim(1), size = in[0].dim(2);
        for (int64_t i = 0; i < in[0].numel(); ++i) {
          const int64_t code = at(in[1], i / size);
          const int64_t row = i / size % heads * codes + code;
          values(in[0])[i] = code < 0 || code >= codes ? 0 : values(in[2])[row * size + i % size];
        }
      },
      {2});
}

void add_update(std::vector<OpCase>& cases, RandomTensors& random, const std::string& name, const Shape& shape,
                const ops::CodebookUpdate& options, bool seeds, bool applies = true) {
  const Shape per_code{shape[0], shape[1]};
  const double applied = applies ? 1 : 0;
  add_in_place(
      cases, "codebook_update", name,
      {random.normal(shape), whole(random, per_code, 0, 4), random.normal(shape), whole(random, per_code, 0, 4),
       seeds ? random.normal(shape) : Tensor(), seeds ? whole(random, per_code, 0, 2) : Tensor()},
      applies ? 2 : 0,
      [=](const Tensors& in) {
        ops::codebook_update(in[0], in[1], in[2], in[3], in[4], in[5], f64_beside(in[0], {1, applied}), options);
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
      },
      {0, 1, 2, 3, 4, 5}, {0, 1});
}

void add_codewords(std::vector<OpCase>& cases, RandomTensors& random, const std::string& name, const Shape& shape,
                   double floor, double smoothing) {
  add_operation(
      cases, "codewords", name, {random.normal(shape), whole(random, {shape[0], shape[1]}, 0, 4)}, shape[1],
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
      {0, 1});
}

void add_codebook_cases(std::vector<OpCase>& cases, RandomTensors& random) {
  add_nearest_backward(cases, random, "one", {1, 1, 1}, true);
  add_nearest_backward(cases, random, "straight_through", {23, 3, 5}, true);
  add_nearest_backward(cases, random, "commitment", {23, 3, 5}, false);
  for (const Shape& shape : {Shape{1, 1}, Shape{37, 3}, Shape{1500, 2}}) {
    add_operation(
        cases, "masked_sum", std::to_string(shape.numel()), {random.normal(shape), random.flags({shape[0]})},
        shape.numel(),
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
        {0});
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

}  // namespace

void add_vq_codebook_cases(std::vector<OpCase>& cases) {
  RandomTensors random(61);
  add_nearest_cases(cases, random);
  add_codebook_cases(cases, random);
}

}  // namespace quire::test
