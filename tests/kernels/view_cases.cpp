// The same values in other shapes.
#include "autograd/functions/views.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

// Element [i, j, k] of a tensor of rank 3.
double& at(const Tensor& x, int64_t i, int64_t j, int64_t k) {
  return values(x)[(i * x.dim(1) + j) * x.dim(2) + k];
}

// A tensor of rank 3 from its elements.
Tensor filled(const Shape& shape, const std::function<double(int64_t, int64_t, int64_t)>& f) {
  const Tensor out = Tensor::zeros(shape, DType::f64);
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      for (int64_t k = 0; k < shape[2]; ++k) at(out, i, j, k) = f(i, j, k);
    }
  }
  return out;
}

}  // namespace

void add_view_cases(std::vector<OpCase>& cases) {
  RandomTensors random(11);
  add_referenced(
      cases, "reshape", "", {random.normal({2, 3, 5})}, 0,
      [](Tape& t, const Inputs& x) {
        return reshape(t, x[0], {6, 5});
      },
      [](const Tensors& in) {
        return Tensors{in[0].reshape({6, 5})};
      });
  add_referenced(
      cases, "slice", "middle", {random.normal({2, 5, 3})}, 0,
      [](Tape& t, const Inputs& x) { return slice(t, x[0], 1, 1, 4); },
      [](const Tensors& in) {
        return Tensors{filled({2, 3, 3}, [&](auto i, auto j, auto k) { return at(in[0], i, j + 1, k); })};
      });
  add_referenced(
      cases, "slice", "first_rows", {random.normal({4, 2, 3})}, 0,
      [](Tape& t, const Inputs& x) { return slice(t, x[0], -3, 0, 2); },
      [](const Tensors& in) {
        return Tensors{filled({2, 2, 3}, [&](auto i, auto j, auto k) { return at(in[0], i, j, k); })};
      });
  OpCase parts =
      function_case("slice", "overlapping", {random.normal({1, 1, 5})}, OpCase::Function([](Tape& t, const Inputs& x) {
                      return std::vector{slice(t, x[0], 2, 0, 3), slice(t, x[0], 2, 2, 5), slice(t, x[0], 2, 1, 1)};
                    }));
  parts.reference = [](const Tensors& in) {
    return Tensors{filled({1, 1, 3}, [&](auto, auto, auto k) { return at(in[0], 0, 0, k); }),
                   filled({1, 1, 3}, [&](auto, auto, auto k) { return at(in[0], 0, 0, k + 2); }),
                   Tensor::zeros({1, 1, 0}, DType::f64)};
  };
  parts.has_bf16_on_cpu = true;
  parts.sum_length = 2;
  cases.push_back(parts);
  add_referenced(
      cases, "concatenate", "axis_1", {random.normal({2, 1, 3}), random.normal({2, 4, 3})}, 0,
      [](Tape& t, const Inputs& x) { return concatenate(t, x, 1); },
      [](const Tensors& in) {
        return Tensors{filled(
            {2, 5, 3}, [&](auto i, auto j, auto k) { return j < 1 ? at(in[0], i, j, k) : at(in[1], i, j - 1, k); })};
      });
  add_referenced(
      cases, "concatenate", "the_same_twice", {random.normal({2, 3, 1})}, 2,
      [](Tape& t, const Inputs& x) {
        return concatenate(t, std::vector{x[0], x[0]}, -1);
      },
      [](const Tensors& in) {
        return Tensors{filled({2, 3, 2}, [&](auto i, auto j, auto) { return at(in[0], i, j, 0); })};
      });
  add_referenced(
      cases, "permute", "", {random.normal({2, 3, 5})}, 0,
      [](Tape& t, const Inputs& x) {
        return permute(t, x[0], {2, 0, 1});
      },
      [](const Tensors& in) {
        return Tensors{filled({5, 2, 3}, [&](auto i, auto j, auto k) { return at(in[0], j, k, i); })};
      });
  add_referenced(
      cases, "broadcast", "middle", {random.normal({2, 1, 3})}, 4,
      [](Tape& t, const Inputs& x) {
        return broadcast(t, x[0], {2, 4, 3});
      },
      [](const Tensors& in) {
        return Tensors{filled({2, 4, 3}, [&](auto i, auto, auto k) { return at(in[0], i, 0, k); })};
      });
  add_referenced(
      cases, "broadcast", "front_and_end", {random.normal({5, 1})}, 6,
      [](Tape& t, const Inputs& x) {
        return broadcast(t, x[0], {3, 5, 2});
      },
      [](const Tensors& in) {
        return Tensors{filled({3, 5, 2}, [&](auto, auto j, auto) { return values(in[0])[j]; })};
      });
}

}  // namespace quire::test
