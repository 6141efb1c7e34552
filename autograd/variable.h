// A value in the computation and, when it takes part in training, its gradient.
#pragma once

#include <memory>

#include "core/tensor.h"

namespace quire {

class Gradient {
 public:
  Gradient(const Shape& shape, DType dtype, Device device) : shape_(shape), dtype_(dtype), device_(device) {}
  // The gradient of a parameter: a slice of the gradient arena, which is zeroed once a step and always accumulated
  // into.
  static std::shared_ptr<Gradient> into(const Tensor& arena);

  DType dtype() const { return dtype_; }
  // Returns true for a parameter's gradient, which lies in the gradient arena.
  bool is_parameter() const { return in_arena_; }
  bool has_value() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  // Returns the value and clears it (not for parameters).
  Tensor take();

  // Adds a tensor that must not change afterwards. The first one is adopted without a copy; a value that has other
  // handles is replaced, not changed.
  void add(const Tensor& term);
  // The tensor to which a kernel writes its term directly: the kernel adds to it when accumulate is set and overwrites
  // it otherwise.
  struct Target {
    Tensor tensor;
    bool accumulate;
  };
  Target target();

 private:
  Shape shape_;
  DType dtype_;
  Device device_;
  Tensor value_;
  bool in_arena_ = false;
};

class Variable {
 public:
  Variable() = default;  // undefined: optional arguments use it
  Variable(Tensor value, std::shared_ptr<Gradient> gradient)
      : value_(std::move(value)), gradient_(std::move(gradient)) {}
  static Variable constant(Tensor value) { return {std::move(value), nullptr}; }
  // Returns a leaf whose gradient is kept after the sweep.
  static Variable leaf(Tensor value);

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  int64_t dim(int axis) const { return value_.dim(axis); }
  bool needs_gradient() const { return gradient_ != nullptr; }
  const std::shared_ptr<Gradient>& gradient() const { return gradient_; }
  Variable detached() const { return constant(value_); }

 private:
  Tensor value_;
  std::shared_ptr<Gradient> gradient_;
};

}  // namespace quire
