// From gradients to weights: one class per optimizer.kind, over the parameter arena.
#pragma once

#include <functional>
#include <memory>

#include "trainers/optimizer/parameter_groups.h"

namespace quire {

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // update counts from 1 and leaves skipped steps out; control: see kernels/optimizer.h.
  virtual void update(int64_t update, double learning_rate, const Tensor& control) = 0;

  // Moments as views, each by parameter name with a prefix that says what it is.
  virtual std::vector<NamedTensor> save() const = 0;
  // get(name, like) returns a tensor of the shape and type of `like`.
  void load(const std::function<Tensor(const std::string&, const Tensor&)>& get);
  int64_t bytes() const;

 protected:
  Optimizer() = default;
};

// The store is allocated and outlives the optimizer.
std::unique_ptr<Optimizer> make_optimizer(const ParameterStore& store, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_adamw(const ParameterStore& store, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_adafactor(const ParameterStore& store, const OptimizerConfig& config);

// The peak learning rate that the schedule scales: optimizer.lr, or the rate that relative_step gives for an update.
double peak_learning_rate(const OptimizerConfig& config, int64_t update);

// The square of the L2 norm of the whole gradient arena: f64 [1], on the weights' device.
Tensor squared_gradient_norm(const ParameterStore& store);

// Moments can take a gradient whose norm, after clipping, is below this. A second moment is a convex combination of
// squares of single gradients, each at most the square of the norm: as long as that one is finite in the type of the
// moments, they are, and nothing has to look at them.
double largest_gradient_norm(DType dtype);

// False when an update overflowed.
bool weights_are_finite(const ParameterStore& store);

}  // namespace quire
