// The exponential moving average of the weights, as a second set of weights that evaluation can use.
#pragma once

#include "trainers/setup/model.h"

namespace quire {

class WeightAverage {
 public:
  // Begins with the current weights.
  WeightAverage(const ParameterStore& weights, const ModelConfig& model, int64_t vocabulary, double decay);
  WeightAverage(const WeightAverage&) = delete;
  WeightAverage& operator=(const WeightAverage&) = delete;

  // Sets the average to the current weights.
  void begin_anew();

  // Call after update 1, 2, ...: average += (1 - keep) (weights - average), keep = min(decay, (1 + update) / (10 +
  // update)). The second term forgets the initial weights, which a long decay would keep for thousands of steps.
  // control: see kernels/optimizer.h.
  void update(int64_t update, const Tensor& control);

  // Returns the averaged weights, for evaluate(). Buffers are not averaged: they are those of the training weights, as
  // of this call.
  ParameterStore& store();

  std::vector<NamedTensor> save() const;  // by parameter name; loading a checkpoint writes into the same tensors

 private:
  const ParameterStore& weights_;
  double decay_;
  ParameterStore average_;
};

}  // namespace quire
