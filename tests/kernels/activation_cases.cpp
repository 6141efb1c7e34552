// Dropout, and GELU with the error function.
#include <cmath>
#include <numbers>

#include "autograd/functions/norm.h"
#include "kernels/elementwise.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

// Computes dropout element by element from the documented counter.
Tensors dropout_reference(const Tensors& in, const ops::DropoutKey& key) {
  const Tensor out = like(in[0]);
  const int64_t tokens = out.dim(1);
  const int64_t width = out.dim(2);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const int64_t element = i % width;
    const int64_t token = i / width % tokens;
    const int64_t row = key.first_row + i / width / tokens;
    const auto bits = philox(key.key, key.scope, static_cast<uint32_t>(row), static_cast<uint32_t>(token),
                             static_cast<uint32_t>(element / 4));
    const bool kept = bits[static_cast<size_t>(element % 4)] * 0x1p-32 >= key.probability;
    const double value = kept ? values(in[0])[i] / (1 - key.probability) : 0;
    values(out)[i] = value + (in[1].defined() ? values(in[1])[i] : 0);
  }
  return {out};
}

void add_dropout(std::vector<OpCase>& cases, RandomTensors& random) {
  const ops::DropoutKey key{RandomKey::of(7, 11), hash_scope("x"), 5, 0.3};
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 3, 7}, Shape{3, 41, 259}}) {
    for (const bool with_residual : {false, true}) {
      add_operation(
          cases, "dropout", std::to_string(shape.numel()) + (with_residual ? "_residual" : ""),
          {random.normal(shape), with_residual ? random.normal(shape) : Tensor()}, 1,
          [key](const Tensors& in) {
            ops::dropout(in[0], in[0], in[1], key);
            return Tensors{in[0]};
          },
          [key](const Tensors& in) { return dropout_reference(in, key); });
    }
  }
}

}  // namespace

void add_activation_cases(std::vector<OpCase>& cases) {
  RandomTensors random(2);
  add_dropout(cases, random);
}

void add_exact_gelu_cases(std::vector<OpCase>& cases) {
  RandomTensors random(41);
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 5}, Shape{13}, Shape{3, 2, 7}, Shape{33333}}) {
    cases.push_back(
        function_case("activation", "gelu_erf_" + name_of(shape), {random.normal(shape, 2, shape.numel() == 1 ? 5 : 0)},
                      [](Tape& tape, const Inputs& x) { return activation(tape, x[0], ops::Activation::gelu_erf); }));
    cases.back().reference = [](const Tensors& in) {
      for (int64_t i = 0; i < in[0].numel(); ++i) {
        double& x = values(in[0])[i];
        x *= 0.5 * std::erfc(-x / std::numbers::sqrt2);
      }
      return Tensors{in[0]};
    };
    if (shape.numel() < 100) continue;
    // Too many for differences.
    cases.back().gradients = [](const Tensors& in) {
      const Tensor dx = first_seed(in[0].shape());
      for (int64_t i = 0; i < dx.numel(); ++i) {
        const double x = values(in[0])[i];
        const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
        values(dx)[i] *= 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
      }
      return Tensors{dx};
    };
  }
}

}  // namespace quire::test
