#include "trainers/optimizer/optimizer.h"

#include <cmath>
#include <limits>

#include "core/check.h"
#include "kernels/optimizer.h"

namespace quire {

Optimizer::~Optimizer() = default;

std::string slice_name(const Moment& moment) {
  return moment.whole() ? moment.name : fmt::format("{}[{}:{}]", moment.name, moment.begin, moment.end);
}

std::vector<NamedTensor> Optimizer::save() const {
  std::vector<NamedTensor> tensors;
  for (const Moment& moment : moments()) tensors.push_back({slice_name(moment), moment.values});
  return tensors;
}

int64_t Optimizer::bytes() const {
  int64_t total = 0;
  for (const Moment& moment : moments()) total += moment.values.bytes();
  return total;
}

ParameterParts::Cut cut_of(const OptimizerConfig& config) {
  return config.kind == OptimizerKind::adamw ? ParameterParts::Cut::anywhere : ParameterParts::Cut::at_parameters;
}

std::unique_ptr<Optimizer> make_optimizer(const ParameterStore& store, const ParameterParts& parts,
                                          const OptimizerConfig& config) {
  const std::optional<GroupFault> fault = find_group_fault(store, config);
  if (fault) fail(ErrorKind::config, "optimizer.{}: {}", fault->key, fault->message);
  switch (config.kind) {
    case OptimizerKind::adamw:
      return make_adamw(store, parts.mine(), config);
    case OptimizerKind::adafactor:
      return make_adafactor(store, parts, config);
    case OptimizerKind::muon:
      return make_muon(store, parts, config);
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

Tensor squared_gradient_norm(const ParameterStore& store, const std::vector<ArenaRange>& ranges) {
  const Tensor total = Tensor::zeros({1}, DType::f64, store.gradients().device());
  for (const ArenaRange& range : ranges) ops::squared_norm(total, store.gradients().slice(0, range.begin, range.end));
  return total;
}

}  // namespace quire
