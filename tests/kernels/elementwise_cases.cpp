#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

// Sizes around one tile of the CPU kernels (16384 elements), and the smallest.
const std::vector<Shape> kShapes{{1}, {7, 3}, {2, 3, 5}, {16384}, {3, 16411}, {0}};

// out[i] = f(a[i], b[i])
OpCase::Run for_each_pair(double (*f)(double, double)) {
  return [f](const Tensors& in) {
    const Tensor out = like(in[0]);
    for (int64_t i = 0; i < out.numel(); ++i) values(out)[i] = f(values(in[0])[i], values(in[1])[i]);
    return Tensors{out};
  };
}

void add_copies(std::vector<OpCase>& cases, RandomTensors& random) {
  // A transposed, cut view into another one: any strides.
  add_operation(
      cases, "copy", "strided", {random.normal({5, 7, 3})}, 0,
      [](const Tensors& in) {
        const Tensor out = beside(in[0], {3, 9, 4});
        ops::copy(out.slice(1, 2, 7).slice(2, 0, 4), in[0].slice(1, 1, 5).transpose(0, 2).transpose(1, 2));
        return Tensors{out};
      },
      [](const Tensors& in) {
        const Tensor out = Tensor::zeros({3, 9, 4}, DType::f64);
        for (int64_t c = 0; c < 3; ++c) {
          for (int64_t a = 0; a < 5; ++a) {
            for (int64_t b = 0; b < 4; ++b) {
              values(out)[(c * 9 + a + 2) * 4 + b] = values(in[0])[(a * 7 + b + 1) * 3 + c];
            }
          }
        }
        return Tensors{out};
      });
  // Features that a GPU moves many at once, of rows that begin where it can and where it cannot, and one row for all.
  add_operation(
      cases, "copy", "of_features", {random.normal({3, 5, 24})}, 0,
      [](const Tensors& in) {
        const Tensor whole = beside(in[0], {3, 7, 40});
        const Tensor within = beside(in[0], {3, 5, 24});
        const Tensor same = beside(in[0], {4, 5, 24});
        ops::copy(whole.slice(1, 2, 7).slice(2, 8, 32), in[0]);
        ops::copy(within.slice(2, 3, 11), in[0].slice(2, 8, 16));
        ops::copy(same, in[0].select(0, 1).reshape({1, 5, 24}).broadcast({4, 5, 24}));
        return Tensors{whole, within, same};
      },
      [](const Tensors& in) {
        const Tensor whole = Tensor::zeros({3, 7, 40}, DType::f64);
        const Tensor within = Tensor::zeros({3, 5, 24}, DType::f64);
        const Tensor same = Tensor::zeros({4, 5, 24}, DType::f64);
        for (int64_t line = 0; line < 15; ++line) {
          const double* const from = values(in[0]) + line * 24;
          for (int64_t f = 0; f < 24; ++f) values(whole)[(line / 5 * 7 + line % 5 + 2) * 40 + f + 8] = from[f];
          for (int64_t f = 0; f < 8; ++f) values(within)[line * 24 + f + 3] = from[f + 8];
        }
        for (int64_t i = 0; i < same.numel(); ++i) values(same)[i] = values(in[0])[120 + i % 120];
        return Tensors{whole, within, same};
      });
  add_operation(
      cases, "copy", "integers", {random.integers({3, 4}, 0, 9)}, 0,
      [](const Tensors& in) {
        const Tensor out = beside(in[0], {4, 3});
        ops::copy(out, in[0].transpose(0, 1));
        const std::vector<int32_t> got = out.to_vector<int32_t>();
        return Tensors{Tensor::from(std::vector<double>(got.begin(), got.end()), {4, 3})};
      },
      [](const Tensors& in) {
        const Tensor out = Tensor::zeros({4, 3}, DType::f64);
        for (int64_t i = 0; i < 12; ++i) values(out)[i % 4 * 3 + i / 4] = in[0].data<int32_t>()[i];
        return Tensors{out};
      });
  // Rows that begin anywhere.
  add_operation(
      cases, "convert", "second_row", {random.normal({3, 37})}, 0,
      [](const Tensors& in) {
        const Tensor narrow = Tensor::zeros({3, 37}, DType::bf16, in[0].device());
        const Tensor wide = Tensor::zeros({3, 37}, DType::f64, in[0].device());
        ops::convert(narrow.slice(0, 1, 3), in[0].slice(0, 1, 3));
        ops::convert(wide.slice(0, 1, 2), in[0].slice(0, 1, 2));
        return Tensors{narrow, wide};
      },
      [](const Tensors& in) {
        const Tensor narrow = recast(recast(in[0], DType::bf16), DType::f64);
        const Tensor wide = Tensor::zeros({3, 37}, DType::f64);
        for (int64_t i = 0; i < 37; ++i) {
          values(narrow)[i] = 0;
          values(wide)[37 + i] = values(in[0])[37 + i];
        }
        return Tensors{narrow, wide};
      });
  for (const Shape& shape : kShapes) {
    add_operation(
        cases, "convert", name_of(shape), {random.normal(shape)}, 0,
        [](const Tensors& in) {
          // To f32 and back, whatever the input is: its values are on the f32 grid.
          const Tensor narrow = Tensor::zeros(in[0].shape(), DType::f32, in[0].device());
          const Tensor wide = Tensor::zeros(in[0].shape(), DType::f64, in[0].device());
          ops::convert(narrow, in[0]);
          ops::convert(wide, narrow);
          return Tensors{narrow, wide};
        },
        [](const Tensors& in) {
          return Tensors{in[0], in[0]};
        });
    add_operation(
        cases, "convert", name_of(shape) + "_bf16", {random.normal(shape)}, 0,
        [](const Tensors& in) {
          const Tensor stored = Tensor::zeros(in[0].shape(), DType::bf16, in[0].device());
          const Tensor back = like(in[0]);
          ops::convert(stored, in[0]);
          ops::convert(back, stored);
          return Tensors{stored, back};
        },
        [](const Tensors& in) {
          const Tensor out = like(in[0]);
          for (int64_t i = 0; i < out.numel(); ++i) {
            // 8 significant bits, ties to even: what nearbyint does.
            int exponent = 0;
            const double part = std::frexp(values(in[0])[i], &exponent);
            values(out)[i] = std::ldexp(std::nearbyint(std::ldexp(part, 8)), exponent - 8);
          }
          return Tensors{out, out};
        });
  }
}

void add_sums(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const Shape& shape : kShapes) {
    const std::string size = name_of(shape);
    add_operation(
        cases, "add", size, {random.normal(shape), random.normal(shape)}, 1,
        [](const Tensors& in) {
          const Tensor out = like(in[0]);
          ops::add(out, in[0], in[1], 0.75, -2);
          ops::add(in[1], in[0], in[1], 0.75, -2);  // in place
          return Tensors{out, in[1]};
        },
        [](const Tensors& in) {
          const Tensor out = for_each_pair([](double a, double b) { return 0.75 * a - 2 * b; })(in)[0];
          return Tensors{out, out};
        });
    add_operation(
        cases, "multiply", size, {random.normal(shape), random.normal(shape)}, 1,
        [](const Tensors& in) {
          const Tensor out = like(in[0]);
          ops::multiply(out, in[0], in[1]);
          return Tensors{out};
        },
        for_each_pair([](double a, double b) { return a * b; }));
    add_operation(
        cases, "scale_by", size, {random.normal(shape)}, 1,
        [](const Tensors& in) {
          const Tensor out = like(in[0]);
          ops::scale_by(out, in[0], f64_beside(in[0], {-0.3}));
          return Tensors{out};
        },
        [](const Tensors& in) {
          for (int64_t i = 0; i < in[0].numel(); ++i) values(in[0])[i] *= -0.3;
          return Tensors{in[0]};
        });
  }
}

void add_adamw(std::vector<OpCase>& cases, RandomTensors& random) {
  const ops::AdamW options{0.01, 0.8, 0.95, 1e-6, 0.1, 3};
  constexpr double kScale = 0.5;
  for (const int64_t count : {1, 17, 40000}) {
    Tensor second = random.normal({count});
    for (int64_t i = 0; i < count; ++i) values(second)[i] *= values(second)[i];
    const Tensors inputs{random.normal({count}), random.normal({count}),
                         converted(converted(second, DType::f32), DType::f64), random.normal({count})};
    for (const double apply : {1.0, 0.0}) {
      add_in_place(
          cases, "adamw", std::to_string(count) + (apply == 0 ? "_not_applied" : ""), inputs, apply == 0 ? 0 : 1,
          [options, apply](const Tensors& in) {
            ops::adamw(in[0], in[1], in[2], in[3], f64_beside(in[0], {kScale, apply}), options);
          },
          [o = options, apply](const Tensors& in) {
            for (int64_t i = 0; apply != 0 && i < in[0].numel(); ++i) {
              double& w = values(in[0])[i];
              double& m = values(in[1])[i];
              double& v = values(in[2])[i];
              const double g = kScale * values(in[3])[i];
              m = o.beta1 * m + (1 - o.beta1) * g;
              v = o.beta2 * v + (1 - o.beta2) * g * g;
              const double m_hat = m / (1 - std::pow(o.beta1, o.step));
              const double v_hat = v / (1 - std::pow(o.beta2, o.step));
              w -= o.learning_rate * m_hat / (std::sqrt(v_hat) + o.eps) + o.decay * w;
            }
          },
          {0, 1, 2, 3}, {0, 1, 2});
    }
  }
}

}  // namespace

void add_elementwise_cases(std::vector<OpCase>& cases) {
  RandomTensors random(1);
  add_copies(cases, random);
  add_sums(cases, random);
  add_adamw(cases, random);
}

}  // namespace quire::test
