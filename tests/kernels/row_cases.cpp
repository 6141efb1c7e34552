// Products of batches, and rows of tables by their number.
#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/functions/rows.h"
#include "kernels/block_attention.h"
#include "kernels/choice.h"
#include "kernels/gemm.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

// c [B, M, N], a and b with B or 1 matrices.
Tensor products(const Tensor& a, const Tensor& b, const Shape& shape, const MatmulOptions& o) {
  const Tensor c = Tensor::zeros(shape, DType::f64);
  const int64_t m = shape[-2];
  const int64_t n = shape[-1];
  const int64_t inner = o.transpose_a ? a.dim(-2) : a.dim(-1);
  const int64_t of_a = a.numel() / (m * inner);
  const int64_t of_b = b.numel() / (n * inner);
  for (int64_t p = 0; p * m * n < c.numel(); ++p) {
    const double* x = values(a) + (of_a == 1 ? 0 : p) * m * inner;
    const double* y = values(b) + (of_b == 1 ? 0 : p) * n * inner;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t k = 0; k < inner; ++k) {
          values(c)[(p * m + i) * n + j] +=
              x[o.transpose_a ? k * m + i : i * inner + k] * y[o.transpose_b ? j * inner + k : k * n + j];
        }
      }
    }
  }
  return c;
}

void add_products(std::vector<OpCase>& cases) {
  RandomTensors random(21);
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      const MatmulOptions options{a_transposed, b_transposed};
      const auto matrices = [&](std::vector<int64_t> front, int64_t rows, int64_t columns, bool transposed) {
        front.push_back(transposed ? columns : rows);
        front.push_back(transposed ? rows : columns);
        return random.normal(Shape(std::span<const int64_t>(front)));
      };
      const std::string transposed = std::string(a_transposed ? "_a" : "") + (b_transposed ? "_b" : "");
      struct ProductForm {
        std::string name;
        std::vector<int64_t> a, b;
        Shape out;
        int64_t inner;
      };
      const std::vector<ProductForm> forms{{"one", {}, {}, {3, 4}, 5},
                                           {"several", {2, 3}, {2, 3}, {2, 3, 1, 7}, 5},
                                           {"one_right", {6}, {}, {6, 3, 2}, 4},
                                           {"one_left", {}, {3}, {3, 2, 5}, 1},
                                           {"broadcast", {2, 1}, {1, 2}, {2, 2, 3, 2}, 3},
                                           {"nothing", {2}, {2}, {2, 3, 2}, 0},
                                           {"large", {3}, {3}, {3, 67, 131}, 40}};
      for (const ProductForm& form : forms) {
        const Tensor a = matrices(form.a, form.out[-2], form.inner, a_transposed);
        const Tensor b = matrices(form.b, form.inner, form.out[-1], b_transposed);
        add_referenced(
            cases, "matmul", form.name + transposed, {a, b}, std::max<int64_t>(form.inner, 131),
            [options](Tape& t, const Inputs& x) { return matmul(t, x[0], x[1], options); },
            [options, form](const Tensors& in) {
              if (form.inner == 0) return Tensors{Tensor::zeros(form.out, DType::f64)};
              if (form.name != "broadcast") return Tensors{products(in[0], in[1], form.out, options)};
              const Tensor out = Tensor::zeros(form.out, DType::f64);
              for (int64_t p = 0; p < 4; ++p) {
                const Tensor of_two =
                    products(in[0].slice(0, p / 2, p / 2 + 1), in[1].slice(1, p % 2, p % 2 + 1), {1, 1, 3, 2}, options);
                std::copy_n(values(of_two), 6, values(out) + p * 6);
              }
              return Tensors{out};
            });
      }
    }
  }
  // Parts of larger tensors, added to what is there.
  add_operation(
      cases, "gemm", "several_strided", {random.normal({3, 4, 2, 5}), random.normal({5, 7}), random.normal({3, 2, 7})},
      6,
      [](const Tensors& in) {
        const Tensor& c = in[2];
        const Tensor a = in[0].select(1, 2);  // [3, 2, 5], not contiguous
        ops::gemm(c, a, in[1].broadcast({3, 5, 7}), {.accumulate = true});
        return Tensors{c};
      },
      [](const Tensors& in) {
        for (int64_t p = 0; p < 3; ++p) {
          for (int64_t i = 0; i < 14; ++i) {
            for (int64_t k = 0; k < 5; ++k) {
              values(in[2])[p * 14 + i] +=
                  values(in[0])[((p * 4 + 2) * 2 + i / 7) * 5 + k] * values(in[1])[k * 7 + i % 7];
            }
          }
        }
        return Tensors{in[2]};
      });
}

// out [B, M, E] = table [B or 1, N, E] at index [B, M].
Tensor gathered(const Tensor& table, const Tensor& index, const Shape& shape) {
  const Tensor out = Tensor::zeros(shape, DType::f64);
  const int64_t size = table.dim(-1);
  const int64_t per_batch = table.dim(-2);
  const int64_t count = index.dim(-1);
  const bool is_one = table.rank() == 2;
  for (int64_t m = 0; m < index.numel(); ++m) {
    const int64_t row = index.data<int32_t>()[m];
    if (row < 0) continue;
    std::copy_n(values(table) + ((is_one ? 0 : m / count * per_batch) + row) * size, size, values(out) + m * size);
  }
  return out;
}

void add_rows(std::vector<OpCase>& cases) {
  RandomTensors random(22);
  const Tensor one = random.integers({2, 3, 2}, -1, 5);
  add_referenced(
      cases, "gather_rows", "of_one_table", {random.normal({5, 3}), one}, 12,
      [](Tape& t, const Inputs& x) { return gather_rows(t, x[0], x[1].value()); },
      [](const Tensors& in) {
        return Tensors{gathered(in[0], in[1], {2, 3, 2, 3})};
      });
  const Tensor several = random.integers({2, 9}, -2, 4);
  add_referenced(
      cases, "gather_rows", "of_several", {random.normal({2, 4, 3}), several}, 9,
      [](Tape& t, const Inputs& x) { return gather_rows(t, x[0], x[1].value()); },
      [](const Tensors& in) {
        return Tensors{gathered(in[0], in[1], {2, 9, 3})};
      });
  const auto scattered = [](const Tensor& x, const Tensor& index, const Shape& shape) {
    const Tensor out = Tensor::zeros(shape, DType::f64);
    const int64_t size = shape[-1];
    const int64_t count = index.dim(-1);
    for (int64_t m = 0; m < index.numel(); ++m) {
      const int64_t row = index.data<int32_t>()[m];
      for (int64_t e = 0; row >= 0 && e < size; ++e) {
        values(out)[(m / count * shape[-2] + row) * size + e] += values(x)[m * size + e];
      }
    }
    return out;
  };
  add_referenced(
      cases, "scatter_rows", "to_one_table", {random.normal({7, 3}), random.integers({7}, -1, 4)}, 7,
      [](Tape& t, const Inputs& x) { return scatter_rows(t, x[0], x[1].value(), 5); },
      [scattered](const Tensors& in) {
        return Tensors{scattered(in[0], in[1], {5, 3})};
      });
  add_referenced(
      cases, "scatter_rows", "to_several", {random.normal({2, 3, 6, 4}), random.integers({2, 3, 6}, -1, 3)}, 6,
      [](Tape& t, const Inputs& x) { return scatter_rows(t, x[0], x[1].value(), 3); },
      [scattered](const Tensors& in) {
        return Tensors{scattered(in[0], in[1], {2, 3, 3, 4})};
      });
  add_operation(
      cases, "rows_of_tables", "", {random.integers({3, 4}, -2, 5)}, 0,
      [](const Tensors& in) {
        const Tensor rows = Tensor::zeros({3, 4}, DType::i32, in[0].device());
        ops::rows_of_tables(rows, in[0], 5);
        return Tensors{recast(rows, DType::f64)};
      },
      [](const Tensors& in) {
        const Tensor rows = Tensor::zeros({3, 4}, DType::f64);
        for (int64_t i = 0; i < 12; ++i) {
          const int32_t at = in[0].data<int32_t>()[i];
          const int64_t line = at + i / 4 * 5;
          values(rows)[i] = at < 0 ? -1 : static_cast<double>(line);
        }
        return Tensors{rows};
      });
  // Two rows with three lists of two chunks, of four stored ones in rings of five and three of the subsequence.
  const auto lists = [](const std::vector<int32_t>& ids, const Shape& shape) { return Tensor::from(ids, shape, kCpu); };
  add_operation(
      cases, "place_blocks", "lists",
      {lists({1, 3, 0, 4}, {2, 2}), lists({5, 0, -1, -1, 6, 3, 1, 4, 2, -1, -1, -1}, {2, 3, 2}), lists({1, 4}, {2}),
       lists({3, 1}, {2}), lists({4, 4}, {2}), lists({0, 0}, {2})},
      0,
      [](const Tensors& in) {
        const Tensor slot = Tensor::zeros({2, 4, 2}, DType::i32, in[0].device());
        const Tensor own = Tensor::empty_like(slot), later = Tensor::empty_like(slot);
        ops::place_blocks(slot, later, own, {in[1], in[2], in[4], in[5], 5, 4, {}, in[0], in[3]});
        return Tensors{recast(slot, DType::f64), recast(own, DType::f64), recast(later, DType::f64)};
      },
      [lists](const Tensors&) {
        const Shape shape{2, 4, 2};
        return Tensors{recast(lists({0, 3, -1, 2, -1, -1, -1, 0, -1, 5, 6, -1, 7, -1, -1, -1}, shape), DType::f64),
                       recast(lists({-1, -1, 1, -1, -1, -1, 2, -1, -1, -1, -1, 3, -1, -1, -1, -1}, shape), DType::f64),
                       recast(lists({4, 6, 2, 7, 0, 0, 1, 4, 0, 5, 4, 1, 3, 0, 0, 0}, shape), DType::f64)};
      });
}

// Rows by hand: each round takes the largest value that is left.
Tensor largest(const Tensors& in, int64_t k) {
  const int64_t width = in[0].dim(-1);
  const int64_t rows = in[0].numel() / width;
  std::vector<double> places;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<bool> taken(static_cast<size_t>(width));
    for (int64_t round = 0; round < k; ++round) {
      int64_t best = -1;
      double best_score = 0;
      for (int64_t i = 0; i < width; ++i) {
        const bool kept = in.size() < 2 || in[1].data<uint8_t>()[i] != 0;
        const double value = values(in[0])[row * width + i];
        const double score = std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
        if (!kept || taken[static_cast<size_t>(i)] || (best >= 0 && score <= best_score)) continue;
        best = i;
        best_score = score;
      }
      if (best >= 0) taken[static_cast<size_t>(best)] = true;
      places.push_back(static_cast<double>(best));
    }
  }
  Shape shape = in[0].shape();
  shape[-1] = k;
  return Tensor::from(places, shape);
}

void add_choices(std::vector<OpCase>& cases) {
  RandomTensors random(23);
  const Tensor ties = recast(random.integers({4, 9}, 0, 3), DType::f64);
  Tensor not_numbers = random.normal({2, 5});
  values(not_numbers)[3] = std::nan("");
  values(not_numbers)[4] = -std::numeric_limits<double>::infinity();
  Tensor mask = random.flags({40});
  const Tensor long_ties = recast(random.integers({2, 300}, 0, 3), DType::f64);
  Tensor long_mask = random.flags({300});
  struct ChoiceForm {
    std::string name;
    Tensors inputs;
    int64_t k;
  };
  for (const ChoiceForm& form :
       {ChoiceForm{"one", {random.normal({3, 7})}, 1}, ChoiceForm{"some", {random.normal({2, 2, 67})}, 5},
        ChoiceForm{"more_than_there_are", {random.normal({2, 3})}, 5}, ChoiceForm{"ties", {ties}, 4},
        ChoiceForm{"not_a_number", {not_numbers}, 3}, ChoiceForm{"mask", {random.normal({3, 40}), mask}, 33},
        ChoiceForm{"long", {random.normal({3, 2003})}, 8}, ChoiceForm{"long_ties", {long_ties}, 250},
        ChoiceForm{"long_mask", {long_ties, long_mask}, 200}}) {
    add_operation(
        cases, "top_k", form.name, form.inputs, 0,
        [k = form.k](const Tensors& in) {
          return Tensors{recast(top_k(in[0], k, in.size() < 2 ? Tensor() : in[1]), DType::f64)};
        },
        [k = form.k](const Tensors& in) { return Tensors{largest(in, k)}; });
    cases.back().has_bf16_on_cpu = true;
  }
}

}  // namespace

void add_row_cases(std::vector<OpCase>& cases) {
  add_products(cases);
  add_rows(cases);
  add_choices(cases);
}

}  // namespace quire::test
