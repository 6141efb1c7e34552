// AdamW over the parameter arena.
#pragma once

#include "layers/parameter_store.h"
#include "trainers/config.h"

namespace quire {

class Optimizer {
 public:
  Optimizer(const ParameterStore& store, const OptimizerConfig& config);

  // step counts from 1; gradient_scale is the clipping factor.
  void update(int64_t step, double learning_rate, double gradient_scale);

  // Moments by parameter name, prefixed "m." and "v.".
  std::vector<NamedTensor> save() const;
  void load(const std::function<Tensor(const std::string&)>& get);
  int64_t bytes() const { return first_.bytes() + second_.bytes(); }

 private:
  const ParameterStore& store_;
  OptimizerConfig config_;
  Tensor first_;
  Tensor second_;
};

// Largest relative change of all gradients that keeps their norm at or below `clip` (0 is off).
double clipping_factor(double norm, double clip);

// L2 norm of the whole gradient arena.
double gradient_norm(const ParameterStore& store);

// False when an update overflowed.
bool weights_are_finite(const ParameterStore& store);

}  // namespace quire
