// Linear maps to which a residual is added, and feed-forward layers as one operation.
#include <tuple>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/rows.h"
#include "kernels/gemm.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

Variable mapped(Tape& t, const Variable& x, const Variable& weight, const Variable& bias) {
  const Variable y = matmul(t, x, weight, {.transpose_b = true});
  return bias.defined() ? add(t, y, bias) : y;
}

// Inputs: x, weight, bias and what the result is added to, which may be x.
void add_linear(std::vector<OpCase>& cases, const std::string& variant, const Tensors& inputs) {
  add_composed(
      cases, "linear", variant, inputs, 13,
      [](Tape& t, const Inputs& x) { return linear(t, x[0], x[1], x[2], x[x.size() > 3 ? 3 : 0]); },
      [](Tape& t, const Inputs& x) { return add(t, x[x.size() > 3 ? 3 : 0], mapped(t, x[0], x[1], x[2])); }, {2});
}

// Inputs: x, weight and bias of both maps, and what the result is added to. Biases may be undefined, and so may the
// last.
void add_feed_forward(std::vector<OpCase>& cases, const std::string& variant, ops::Activation kind,
                      const Tensors& inputs) {
  add_composed(
      cases, "feed_forward", variant, inputs, 40,
      [kind](Tape& t, const Inputs& x) {
        return feed_forward(t, x[0], {x[1], x[2]}, kind, {x[3], x[4]}, x[5]);
      },
      [kind](Tape& t, const Inputs& x) {
        const Variable y = mapped(t, activation(t, mapped(t, x[0], x[1], x[2]), kind), x[3], x[4]);
        return x[5].defined() ? add(t, x[5], y) : y;
      },
      {2, 4});
}

// The gradients of a weight and of a bias in one call, added to what is there or not.
void add_sums_of_rows(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const int64_t tokens : {0, 1, 37}) {
    for (const bool add : {false, true}) {
      add_in_place(
          cases, "gemm", "sums_of_" + std::to_string(tokens) + (add ? "_added" : ""),
          {random.normal({tokens, 5}), random.normal({tokens, 3}), random.normal({5, 3}), random.normal({5})},
          tokens + 1,
          [add](const Tensors& in) {
            ops::gemm(in[2], in[0], in[1], {.transpose_a = true, .accumulate = add, .sums = in[3], .add_sums = add});
          },
          [add, tokens](const Tensors& in) {
            for (int64_t i = 0; i < 5; ++i) {
              if (!add) values(in[3])[i] = 0;
              for (int64_t t = 0; t < tokens; ++t) values(in[3])[i] += values(in[0])[t * 5 + i];
              for (int64_t j = 0; j < 3; ++j) {
                double& c = values(in[2])[i * 3 + j];
                if (!add) c = 0;
                for (int64_t t = 0; t < tokens; ++t) {
                  c += values(in[0])[t * 5 + i] * values(in[1])[t * 3 + j];
                }
              }
            }
          },
          {3}, {2, 3});
    }
  }
}

}  // namespace

void add_feed_forward_cases(std::vector<OpCase>& cases) {
  RandomTensors r(31);
  add_linear(cases, "residual", {r.normal({2, 3, 5}), r.normal({7, 5}), r.normal({7}), r.normal({2, 3, 7})});
  add_linear(cases, "residual_is_input", {r.normal({3, 5}), r.normal({5, 5}), r.normal({5})});
  // x, maps to hidden features and back. Small weights: in the tail of GELU rounding errors grow.
  const auto inputs = [&r](const Shape& x, int64_t hidden, int64_t out, bool biased) {
    return Tensors{r.normal(x),
                   r.normal({hidden, x[-1]}, 0.3),
                   biased ? r.normal({hidden}) : Tensor(),
                   r.normal({out, hidden}),
                   biased ? r.normal({out}) : Tensor(),
                   Tensor()};
  };
  for (const auto& [name, kind] :
       {std::pair{"relu", ops::Activation::relu}, {"gelu", ops::Activation::gelu}, {"silu", ops::Activation::silu}}) {
    add_feed_forward(cases, name, kind, inputs({3, 5}, 4, 2, true));
  }
  add_feed_forward(cases, "without_bias", ops::Activation::gelu, inputs({2, 3, 5}, 7, 5, false));
  // The second one has the sizes that what cuBLASLt has built in needs.
  for (const auto& [name, width, hidden] : {std::tuple{"residual", 5, 7}, {"built_in", 8, 16}}) {
    Tensors given = inputs({2, 3, width}, hidden, width, true);
    given.back() = r.normal({2, 3, width});
    add_feed_forward(cases, name, ops::Activation::gelu, given);
  }
  add_sums_of_rows(cases, r);
}

}  // namespace quire::test
