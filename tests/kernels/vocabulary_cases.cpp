// Functions of elements and along axes, in the vocabulary that mechanisms are composed of.
#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/pointwise.h"
#include "kernels/pointwise.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

// The value that x has at place i of a shape it is broadcast to.
template <typename T>
T broadcast_value(const Tensor& x, const Shape& shape, int64_t i) {
  int64_t at = 0;
  int64_t step = 1;
  for (int axis = 1; axis <= x.rank(); ++axis) {
    const int64_t place = i % shape[-axis];
    i /= shape[-axis];
    if (x.dim(-axis) != 1) at += place * step;
    step *= x.dim(-axis);
  }
  return x.data<T>()[at];
}

using BinaryFunction = Variable (*)(Tape&, const Variable&, const Variable&);

void add_binary(std::vector<OpCase>& cases, const char* name, BinaryFunction function, double (*f)(double, double)) {
  struct Pair {
    Shape a, b, out;
  };
  const std::vector<Pair> pairs{{{7, 3}, {7, 3}, {7, 3}},
                                {{2, 3, 4}, {3, 1}, {2, 3, 4}},
                                {{4}, {2, 3, 1}, {2, 3, 4}},
                                {{1}, {5}, {5}},
                                {{0, 3}, {3}, {0, 3}},
                                {{2, 1, 3, 1}, {1, 5, 1, 2}, {2, 5, 3, 2}},
                                {{5, 24}, {24}, {5, 24}},  // what a GPU takes 16 bytes at a time
                                {{3, 1}, {2, 3, 16}, {2, 3, 16}},
                                {{2, 1, 16}, {2, 5, 1}, {2, 5, 16}},
                                {{3, 16411}, {16411}, {3, 16411}}};
  RandomTensors random(1);
  for (const Pair& pair : pairs) {
    OpCase& made = add_referenced(
        cases, name, name_of(pair.a) + "_" + name_of(pair.b), {random.normal(pair.a), random.normal(pair.b, 0.3, 2)}, 1,
        [function](Tape& t, const Inputs& x) { return function(t, x[0], x[1]); },
        [f, shape = pair.out](const Tensors& in) {
          const Tensor out = Tensor::zeros(shape, DType::f64);
          for (int64_t i = 0; i < out.numel(); ++i) {
            values(out)[i] = f(broadcast_value<double>(in[0], shape, i), broadcast_value<double>(in[1], shape, i));
          }
          return Tensors{out};
        });
    made.sum_length = 60;  // gradients are summed over what was repeated
    made.roundings = 12;   // terms that cancel have been stored
  }
}

// Rows that a GPU takes 16 bytes at a time, which begin where it can load so many at once and where it cannot: by the
// place of the first row, and by the distance of rows.
void add_views_of_rows(std::vector<OpCase>& cases) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kWidth = 16;
  RandomTensors random(5);
  const Tensor odd = random.normal({kRows, kWidth + 1});
  const Tensor even = random.normal({kRows, 2 * kWidth}, 0.3, 2);
  struct Form {
    const char* variant;
    std::array<int64_t, 2> begins;
  };
  for (const Form& form : {Form{"rows_that_begin_anywhere", {1, 1}}, Form{"rows_at_odd_distances", {0, 8}}}) {
    const auto rows = [begins = form.begins](const Tensors& in) {
      return std::array{in[0].slice(1, begins[0], begins[0] + kWidth), in[1].slice(1, begins[1], begins[1] + kWidth)};
    };
    const auto value = [begins = form.begins](const Tensors& in, size_t operand, int64_t i) {
      const int64_t place = i / kWidth * in[operand].dim(1) + begins[operand] + i % kWidth;
      return values(in[operand])[place];
    };
    add_operation(
        cases, "binary", form.variant, {odd, even}, 1,
        [rows](const Tensors& in) {
          const auto [a, b] = rows(in);
          const Tensor out = beside(in[0], {kRows, 2 * kWidth});
          ops::binary(out.slice(1, 3, 3 + kWidth), a, b, ops::Binary::product);
          return Tensors{out};
        },
        [value](const Tensors& in) {
          const Tensor out = Tensor::zeros({kRows, 2 * kWidth}, DType::f64);
          for (int64_t i = 0; i < kRows * kWidth; ++i) {
            values(out)[i / kWidth * 2 * kWidth + 3 + i % kWidth] = value(in, 0, i) * value(in, 1, i);
          }
          return Tensors{out};
        })
        .has_bf16_on_cpu = true;
    add_operation(
        cases, "binary_backward", form.variant, {odd, even}, 1,
        [rows](const Tensors& in) {
          const auto [a, b] = rows(in);
          const Tensor da = beside(in[0], {kRows, kWidth}), db = like(da);
          ops::binary_backward(da, db, a, a, b, ops::Binary::quotient);
          return Tensors{da, db};
        },
        [value](const Tensors& in) {
          const Tensor da = Tensor::zeros({kRows, kWidth}, DType::f64), db = like(da);
          for (int64_t i = 0; i < kRows * kWidth; ++i) {
            const double a = value(in, 0, i);
            const double b = value(in, 1, i);
            values(da)[i] = a / b;  // dout is a
            values(db)[i] = -a * a / (b * b);
          }
          return Tensors{da, db};
        })
        .has_bf16_on_cpu = true;
  }
}

void add_binaries(std::vector<OpCase>& cases) {
  add_binary(cases, "add", add, [](double a, double b) { return a + b; });
  add_binary(cases, "subtract", subtract, [](double a, double b) { return a - b; });
  add_binary(cases, "multiply", multiply, [](double a, double b) { return a * b; });
  add_binary(cases, "divide", divide, [](double a, double b) { return a / b; });
  add_binary(cases, "maximum", maximum, [](double a, double b) { return a > b ? a : b; });
  add_views_of_rows(cases);
  RandomTensors random(2);
  cases.push_back(function_case("add", "to_itself", {random.normal({7})},
                                [](Tape& t, const Inputs& x) { return add(t, x[0], x[0]); }));
  cases.push_back(function_case("multiply", "by_itself", {random.normal({5})},
                                [](Tape& t, const Inputs& x) { return multiply(t, x[0], x[0]); }));
  OpCase ties =
      function_case("maximum", "ties",
                    {Tensor::from(std::vector<double>{1, 2, 3}, {3}), Tensor::from(std::vector<double>{1, 5, 3}, {3})},
                    [](Tape& t, const Inputs& x) { return maximum(t, x[0], x[1]); });
  ties.gradients = [](const Tensors&) {
    const Tensor g = first_seed({3});
    return Tensors{Tensor::from(std::vector<double>{values(g)[0], 0, values(g)[2]}, {3}),
                   Tensor::from(std::vector<double>{0, values(g)[1], 0}, {3})};
  };
  cases.push_back(ties);
}

using UnaryFunction = Variable (*)(Tape&, const Variable&);

void add_unary(std::vector<OpCase>& cases, const char* name, UnaryFunction function, double (*f)(double), double mean,
               double std) {
  RandomTensors random(3);
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 3}, Shape{0}, Shape{2, 16411}}) {
    OpCase& made = add_referenced(
        cases, name, name_of(shape), {random.normal(shape, std, mean)}, 1,
        [function](Tape& t, const Inputs& x) { return function(t, x[0]); },
        [f](const Tensors& in) {
          const Tensor out = like(in[0]);
          for (int64_t i = 0; i < out.numel(); ++i) values(out)[i] = f(values(in[0])[i]);
          return Tensors{out};
        });
    made.amplification = 4;  // arguments up to 4: exp multiplies their relative rounding by as much
    made.roundings = 24;     // 1 - y^2 and log x from a stored value near 1 keep few bits of it
  }
}

void add_unaries(std::vector<OpCase>& cases) {
  add_unary(
      cases, "exp", exp, [](double x) { return std::exp(x); }, 0, 1);
  add_unary(
      cases, "log", log, [](double x) { return std::log(x); }, 2, 0.3);
  add_unary(
      cases, "square_root", square_root, [](double x) { return std::sqrt(x); }, 2, 0.3);
  add_unary(
      cases, "sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 0, 1);
  add_unary(
      cases, "tanh", tanh, [](double x) { return std::tanh(x); }, 0, 1);
  add_unary(
      cases, "silu", silu, [](double x) { return x / (1 + std::exp(-x)); }, 0, 1);
  OpCase at_zero = function_case("square_root", "at_zero", {Tensor::from(std::vector<double>{0, 4}, {2})},
                                 [](Tape& t, const Inputs& x) { return square_root(t, x[0]); });
  at_zero.gradients = [](const Tensors&) {
    return Tensors{Tensor::from(std::vector<double>{0, values(first_seed({2}))[1] / 4}, {2})};
  };
  cases.push_back(at_zero);
}

void add_selections(std::vector<OpCase>& cases) {
  RandomTensors random(4);
  struct Selection {
    const char* name;
    Tensors inputs;
    Shape out;
    bool has_a = true, has_b = true;
    int64_t sum_length = 1;
  };
  for (const Selection& s :
       {Selection{"both", {random.flags({3, 5}), random.normal({3, 5}), random.normal({3, 5})}, {3, 5}},
        Selection{"broadcast", {random.flags({3, 1}), random.normal({2, 3, 5}), random.normal({1})}, {2, 3, 5}},
        Selection{"first_or_zero", {random.flags({7}), random.normal({7})}, {7}, true, false},
        Selection{"zero_or_second", {random.flags({3, 16411}), random.normal({16411})}, {3, 16411}, false, true, 3}}) {
    add_referenced(
        cases, "select", s.name, s.inputs, s.sum_length,
        [s](Tape& t, const Inputs& x) {
          return select(t, x[0].value(), s.has_a ? x[1] : Variable(), s.has_b ? x.back() : Variable());
        },
        [s](const Tensors& in) {
          const Tensor out = Tensor::zeros(s.out, DType::f64);
          for (int64_t i = 0; i < out.numel(); ++i) {
            const bool first = broadcast_value<uint8_t>(in[0], s.out, i) != 0;
            if (first && s.has_a) values(out)[i] = broadcast_value<double>(in[1], s.out, i);
            if (!first && s.has_b) values(out)[i] = broadcast_value<double>(in.back(), s.out, i);
          }
          return Tensors{out};
        });
  }
}

// Calls f(line) with the values of each line along an axis, which f may change.
void for_lines(const Tensor& x, int axis, const std::function<void(std::vector<double>&)>& f) {
  int64_t inner = 1;
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.dim(i);
  const int64_t size = x.dim(axis);
  for (int64_t line = 0; line * size < x.numel(); ++line) {
    const int64_t begin = line / inner * size * inner + line % inner;
    std::vector<double> along;
    for (int64_t n = 0; n < size; ++n) along.push_back(values(x)[begin + n * inner]);
    f(along);
    for (int64_t n = 0; n < size; ++n) values(x)[begin + n * inner] = along[static_cast<size_t>(n)];
  }
}

// The first value of each line.
Tensor without_axis(const Tensor& x, int axis) {
  const Tensor first = x.slice(axis, 0, 1);
  std::vector<int64_t> sizes;
  std::vector<double> kept;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) sizes.push_back(x.dim(i));
  }
  for_lines(x, axis, [&](std::vector<double>& line) { kept.push_back(line.front()); });
  return Tensor::from(kept, Shape(std::span<const int64_t>(sizes)));
}

void add_sums(std::vector<OpCase>& cases) {
  RandomTensors random(5);
  for (const auto& [shape, axis] : {std::pair<Shape, int>{{5}, 0},
                                    {{3, 4}, 0},
                                    {{3, 4}, 1},
                                    {{2, 3, 4, 5}, 1},
                                    {{2, 1, 3}, 1},
                                    {{3, 1031}, 1},
                                    {{33, 1031}, 0}}) {
    const std::string variant = name_of(shape) + "_" + std::to_string(axis);
    for (const bool is_mean : {false, true}) {
      const double factor = is_mean ? 1 / static_cast<double>(shape[axis]) : 1;
      add_referenced(
          cases, is_mean ? "mean" : "sum", variant, {random.normal(shape)}, shape[axis],
          [axis = axis, is_mean](Tape& t, const Inputs& x) {
            return is_mean ? mean(t, x[0], axis - x[0].shape().rank()) : sum(t, x[0], axis);
          },
          [axis = axis, factor](const Tensors& in) {
            for_lines(in[0], axis, [&](std::vector<double>& line) {
              double total = 0;
              for (const double value : line) total += value;
              line.front() = factor * total;
            });
            return Tensors{without_axis(in[0], axis)};
          });
    }
    add_referenced(
        cases, "cumulative_sum", variant, {random.normal(shape)}, shape[axis],
        [axis = axis](Tape& t, const Inputs& x) { return cumulative_sum(t, x[0], axis); },
        [axis = axis](const Tensors& in) {
          for_lines(in[0], axis, [](std::vector<double>& line) {
            for (size_t n = 1; n < line.size(); ++n) line[n] += line[n - 1];
          });
          return Tensors{in[0]};
        });
  }
  for (const Shape& shape : {Shape{3, 4}, Shape{0, 3}, Shape{33, 1031}}) {
    add_referenced(
        cases, "total", name_of(shape), {random.normal(shape)}, std::max<int64_t>(1, shape.numel()),
        [](Tape& t, const Inputs& x) { return total(t, x[0]); },
        [](const Tensors& in) {
          double all = 0;
          for (int64_t i = 0; i < in[0].numel(); ++i) all += values(in[0])[i];
          return Tensors{Tensor::from(std::vector<double>{all}, {1})};
        });
  }
  add_referenced(
      cases, "sum", "kept_axis", {random.normal({2, 3, 2})}, 1,
      [](Tape& t, const Inputs& x) { return sum(t, x[0], 1, true); },
      [](const Tensors& in) {
        for_lines(in[0], 1, [](std::vector<double>& line) { line[0] += line[1] + line[2]; });
        return Tensors{without_axis(in[0], 1).reshape({2, 1, 2})};
      });
}

// Softmax of the last axis and log of its denominator, of what the mask keeps.
Tensors softmax_of(const Tensors& in) {
  const Tensor out = like(in[0]);
  const int64_t width = in[0].dim(-1);
  std::vector<double> sums;
  std::vector<int64_t> sizes(in[0].shape().begin(), in[0].shape().end() - 1);
  const Shape rows{std::span<const int64_t>(sizes)};
  for (int64_t row = 0; row < rows.numel(); ++row) {
    double sum = 0;
    for (const bool divided : {false, true}) {
      for (int64_t i = row * width; i < (row + 1) * width; ++i) {
        const bool kept = in.size() < 2 || broadcast_value<uint8_t>(in[1], in[0].shape(), i) != 0;
        if (kept && divided) values(out)[i] = std::exp(values(in[0])[i]) / sum;
        if (kept && !divided) sum += std::exp(values(in[0])[i]);
      }
    }
    sums.push_back(std::log(sum));
  }
  return {out, Tensor::from(sums, rows)};
}

void add_softmaxes(std::vector<OpCase>& cases) {
  RandomTensors random(6);
  Tensor mask = random.flags({2, 1, 4, 7});
  for (int64_t i = 0; i < 56; i += 7) mask.data<uint8_t>()[i] = 1;
  const Tensor with_empty = clone(mask);
  for (int64_t i = 0; i < 7; ++i) with_empty.data<uint8_t>()[i] = 0;  // rows without any
  const std::vector<std::pair<std::string, Tensors>> inputs{{"one", {random.normal({3, 1})}},
                                                            {"none", {Tensor::empty(Shape{2, 3, 0}, DType::f64)}},
                                                            {"plain", {random.normal({2, 5}, 3)}},
                                                            {"long", {random.normal({9, 2003}, 2)}},
                                                            {"mask", {random.normal({2, 3, 4, 7}, 2), mask}},
                                                            {"empty_rows", {random.normal({2, 3, 4, 7}), with_empty}}};
  for (const auto& [name, in] : inputs) {
    OpCase& made = add_referenced(
        cases, "softmax", name, in, in[0].dim(-1),
        [](Tape& t, const Inputs& x) { return softmax(t, x[0], x.size() > 1 ? x[1].value() : Tensor()); },
        [](const Tensors& tensors) { return Tensors{softmax_of(tensors)[0]}; });
    made.amplification = 8;
    made.roundings = 12;  // dx = y (g - sum g y) takes a stored y twice
    OpCase& sums = add_referenced(
        cases, "log_sum_exp", name, in, in[0].dim(-1),
        [](Tape& t, const Inputs& x) { return log_sum_exp(t, x[0], x.size() > 1 ? x[1].value() : Tensor()); },
        [](const Tensors& tensors) { return Tensors{softmax_of(tensors)[1]}; });
    sums.amplification = 8;
    if (name != "empty_rows") continue;
    // The sum is -inf, and differences of it are none; the gradient is that of the other rows.
    sums.gradients = [](const Tensors& tensors) {
      const Tensor dx = softmax_of(tensors)[0];
      const Tensor seed = first_seed({2, 3, 4});
      for (int64_t i = 0; i < dx.numel(); ++i) values(dx)[i] *= values(seed)[i / 7];
      return Tensors{dx};
    };
  }
}

void add_conversions(std::vector<OpCase>& cases) {
  RandomTensors random(7);
  OpCase made = function_case("convert", "to_f32_and_back", {random.normal({3, 5})}, [](Tape& t, const Inputs& x) {
    return convert(t, convert(t, x[0], DType::f32), x[0].value().dtype());
  });
  made.reference = [](const Tensors& in) { return in; };  // values lie on the f32 grid
  made.gradients = [](const Tensors&) { return Tensors{first_seed({3, 5})}; };
  made.has_bf16_on_cpu = true;
  cases.push_back(made);
}

}  // namespace

void add_vocabulary_cases(std::vector<OpCase>& cases) {
  add_binaries(cases);
  add_unaries(cases);
  add_selections(cases);
  add_sums(cases);
  add_softmaxes(cases);
  add_conversions(cases);
}

}  // namespace quire::test
