#include "trainers/setup/weight_average.h"

#include <algorithm>

#include "core/check.h"
#include "kernels/optimizer.h"

namespace quire {

WeightAverage::WeightAverage(const ParameterStore& weights, const ModelConfig& model, int64_t vocabulary, double decay)
    : weights_(weights), decay_(decay) {
  const DType dtype = weights.dtype();
  { const Network declared(average_, model, vocabulary, dtype); }
  average_.allocate_frozen(dtype, weights.values().device());
  QUIRE_CHECK(average_.values().numel() == weights.values().numel(), "weight average: {} values for {} weights",
              average_.values().numel(), weights.values().numel());
  begin_anew();
}

void WeightAverage::begin_anew() {
  average_.values().copy_from(weights_.values());
}

void WeightAverage::update(int64_t update, const Tensor& control) {
  const double keep = std::min(decay_, (1.0 + static_cast<double>(update)) / (10.0 + static_cast<double>(update)));
  ops::moving_average(average_.values(), weights_.values(), control, keep);
}

ParameterStore& WeightAverage::store() {
  for (size_t i = 0; i < weights_.buffers().size(); ++i) {
    average_.buffers()[i].value.copy_from(weights_.buffers()[i].value);
  }
  average_.publish();
  return average_;
}

std::vector<NamedTensor> WeightAverage::save() const {
  std::vector<NamedTensor> tensors;
  for (const ParameterStore::Entry& entry : average_.entries()) tensors.push_back({entry.name, average_.value(entry)});
  return tensors;
}

}  // namespace quire
