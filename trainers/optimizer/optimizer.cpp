#include "trainers/optimizer/optimizer.h"

#include <cmath>
#include <limits>

#include "core/check.h"
#include "kernels/optimizer.h"

namespace quire {

Optimizer::~Optimizer() = default;

void Optimizer::load(const std::function<Tensor(const std::string&, const Tensor&)>& get) {
  for (const NamedTensor& moment : save()) moment.tensor.copy_from(get(moment.name, moment.tensor));
}

int64_t Optimizer::bytes() const {
  int64_t total = 0;
  for (const NamedTensor& moment : save()) total += moment.tensor.bytes();
  return total;
}

std::unique_ptr<Optimizer> make_optimizer(const ParameterStore& store, const OptimizerConfig& config) {
  const std::optional<GroupFault> fault = find_group_fault(store, config);
  if (fault) fail(ErrorKind::config, "optimizer.{}: {}", fault->key, fault->message);
  switch (config.kind) {
    case OptimizerKind::adamw:
      return make_adamw(store, config);
    case OptimizerKind::adafactor:
      return make_adafactor(store, config);
  }
  fail(ErrorKind::internal, "optimizer.kind: {} has no implementation", static_cast<int>(config.kind));
}

double peak_learning_rate(const OptimizerConfig& config, int64_t update) {
  if (!config.relative_step) return config.lr;
  return std::min(0.01, 1.0 / std::sqrt(static_cast<double>(update)));
}

double largest_gradient_norm(DType dtype) {
  return std::sqrt(dtype == DType::f64 ? std::numeric_limits<double>::max()
                                       : static_cast<double>(std::numeric_limits<float>::max()));
}

bool weights_are_finite(const ParameterStore& store) {
  const Tensor total = Tensor::zeros({1}, DType::f64, store.values().device());
  ops::squared_norm(total, store.values());
  return std::isfinite(total.to_vector<double>()[0]);
}

Tensor squared_gradient_norm(const ParameterStore& store) {
  const Tensor total = Tensor::zeros({1}, DType::f64, store.gradients().device());
  ops::squared_norm(total, store.gradients());
  return total;
}

}  // namespace quire
