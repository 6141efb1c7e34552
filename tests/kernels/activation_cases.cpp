// Activations and dropout.
#include <cmath>
#include <numbers>

#include "autograd/functions/norm.h"
#include "kernels/elementwise.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

using ops::Activation;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double gelu_inner(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}

double activate(double x, Activation kind) {
  if (kind == Activation::silu) return x * sigmoid(x);
  if (kind == Activation::gelu_erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return kind == Activation::relu ? std::max(x, 0.0) : 0.5 * x * (1 + std::tanh(gelu_inner(x)));
}

double slope(double x, Activation kind) {
  if (kind == Activation::relu) return x > 0 ? 1 : 0;
  if (kind == Activation::silu) return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  if (kind == Activation::gelu_erf) {
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  }
  const double t = std::tanh(gelu_inner(x));
  const double inner = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

void add_activations(std::vector<OpCase>& cases, RandomTensors& random, const std::vector<Activation>& kinds) {
  for (const Activation kind : kinds) {
    for (const int64_t count : {1, 13, 33333}) {
      const char* const names[]{"relu_", "gelu_", "silu_", "gelu_erf_"};
      const std::string name = names[static_cast<int>(kind)] + std::to_string(count);
      // A single value is positive: below zero 1 + tanh cancels, and its error is small beside other values only.
      const double mean = count == 1 ? 5 : 0;
      cases.push_back({"activation",
                       name,
                       {random.normal({count}, 2, mean)},
                       [kind](const std::vector<Tensor>& in) {
                         const Tensor out = like(in[0]);
                         ops::activation(out, in[0], kind);
                         return std::vector<Tensor>{out};
                       },
                       [kind](const std::vector<Tensor>& in) {
                         const Tensor out = like(in[0]);
                         for (int64_t i = 0; i < out.numel(); ++i) values(out)[i] = activate(values(in[0])[i], kind);
                         return std::vector<Tensor>{out};
                       }});
      cases.push_back({"activation_backward",
                       name,
                       {random.normal({count}), random.normal({count}, 2, mean)},
                       [kind](const std::vector<Tensor>& in) {
                         ops::activation_backward(in[0], in[0], in[1], kind);
                         return std::vector<Tensor>{in[0]};
                       },
                       [kind](const std::vector<Tensor>& in) {
                         for (int64_t i = 0; i < in[0].numel(); ++i) values(in[0])[i] *= slope(values(in[1])[i], kind);
                         return std::vector<Tensor>{in[0]};
                       }});
    }
  }
}

void add_swiglu(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const int64_t count : {1, 13, 33333}) {
    cases.push_back({"swiglu",
                     std::to_string(count),
                     {random.normal({count}, 3), random.normal({count})},
                     [](const std::vector<Tensor>& in) {
                       const Tensor out = like(in[0]);
                       ops::swiglu(out, in[0], in[1]);
                       return std::vector<Tensor>{out};
                     },
                     [](const std::vector<Tensor>& in) {
                       const Tensor out = like(in[0]);
                       for (int64_t i = 0; i < out.numel(); ++i) {
                         const double gate = values(in[0])[i];
                         values(out)[i] = gate * sigmoid(gate) * values(in[1])[i];
                       }
                       return std::vector<Tensor>{out};
                     }});
    cases.push_back({"swiglu_backward",
                     std::to_string(count),
                     {random.normal({count}), random.normal({count}, 3), random.normal({count})},
                     [](const std::vector<Tensor>& in) {
                       const Tensor dgate = like(in[0]);
                       const Tensor dup = like(in[0]);
                       ops::swiglu_backward(dgate, dup, in[0], in[1], in[2]);
                       return std::vector<Tensor>{dgate, dup};
                     },
                     [](const std::vector<Tensor>& in) {
                       const Tensor dgate = like(in[0]);
                       const Tensor dup = like(in[0]);
                       for (int64_t i = 0; i < dgate.numel(); ++i) {
                         const double gate = values(in[1])[i];
                         const double s = sigmoid(gate);
                         values(dup)[i] = values(in[0])[i] * gate * s;
                         values(dgate)[i] = values(in[0])[i] * values(in[2])[i] * (s + gate * s * (1 - s));
                       }
                       return std::vector<Tensor>{dgate, dup};
                     }});
  }
}

// Computes dropout element by element from the documented counter.
std::vector<Tensor> dropout_reference(const std::vector<Tensor>& in, const ops::DropoutKey& key) {
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
      cases.push_back({"dropout",
                       std::to_string(shape.numel()) + (with_residual ? "_residual" : ""),
                       {random.normal(shape), with_residual ? random.normal(shape) : Tensor()},
                       [key](const std::vector<Tensor>& in) {
                         ops::dropout(in[0], in[0], in[1], key);
                         return std::vector<Tensor>{in[0]};
                       },
                       [key](const std::vector<Tensor>& in) { return dropout_reference(in, key); }});
    }
  }
}

}  // namespace

void add_activation_cases(std::vector<OpCase>& cases) {
  RandomTensors random(2);
  add_activations(cases, random, {Activation::relu, Activation::gelu, Activation::silu});
  add_swiglu(cases, random);
  add_dropout(cases, random);
}

void add_exact_gelu_cases(std::vector<OpCase>& cases) {
  RandomTensors random(41);
  add_activations(cases, random, {Activation::gelu_erf});
  for (const Shape& shape : {Shape{1, 5}, Shape{3, 2, 7}}) {
    cases.push_back(function_case(
        "activation", "gelu_erf_" + std::to_string(shape.numel()) + "_function", {random.normal(shape)},
        [](Tape& tape, const std::vector<Variable>& x) { return activation(tape, x[0], Activation::gelu_erf); }));
  }
}

}  // namespace quire::test
