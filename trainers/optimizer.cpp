#include "trainers/optimizer.h"

#include <cmath>

#include "core/check.h"
#include "kernels/optimizer.h"

namespace quire {

Optimizer::Optimizer(const ParameterStore& store, const OptimizerConfig& config)
    : store_(store),
      config_(config),
      first_(Tensor::zeros(store.values().shape(), store.values().dtype(), store.values().device())),
      second_(Tensor::zeros(store.values().shape(), store.values().dtype(), store.values().device())) {}

void Optimizer::update(int64_t step, double learning_rate, double gradient_scale) {
  ops::AdamW options{.learning_rate = learning_rate,
                     .beta1 = config_.betas[0],
                     .beta2 = config_.betas[1],
                     .eps = config_.eps,
                     .weight_decay = config_.weight_decay,
                     .gradient_scale = gradient_scale,
                     .step = step};
  const int64_t total = store_.values().numel();
  const int64_t decayed = store_.decayed_elements();
  for (const auto& [begin, end] : {std::pair{int64_t{0}, decayed}, std::pair{decayed, total}}) {
    if (begin == end) continue;
    if (begin == decayed) options.weight_decay = 0;
    ops::adamw(store_.values().slice(0, begin, end), first_.slice(0, begin, end), second_.slice(0, begin, end),
               store_.gradients().slice(0, begin, end), options);
  }
}

std::vector<NamedTensor> Optimizer::save() const {
  std::vector<NamedTensor> tensors;
  for (const ParameterStore::Entry& entry : store_.entries()) {
    tensors.push_back({"m." + entry.name, ParameterStore::slice(first_, entry)});
    tensors.push_back({"v." + entry.name, ParameterStore::slice(second_, entry)});
  }
  return tensors;
}

void Optimizer::load(const std::function<Tensor(const std::string&)>& get) {
  for (const ParameterStore::Entry& entry : store_.entries()) {
    ParameterStore::slice(first_, entry).copy_from(get("m." + entry.name));
    ParameterStore::slice(second_, entry).copy_from(get("v." + entry.name));
  }
}

double clipping_factor(double norm, double clip) {
  return clip > 0 && norm > clip ? clip / norm : 1.0;
}

bool weights_are_finite(const ParameterStore& store) {
  const Tensor total = Tensor::zeros({1}, DType::f64, store.values().device());
  ops::squared_norm(total, store.values());
  return std::isfinite(total.to_vector<double>()[0]);
}

double gradient_norm(const ParameterStore& store) {
  const Tensor total = Tensor::zeros({1}, DType::f64, store.gradients().device());
  ops::squared_norm(total, store.gradients());
  return std::sqrt(total.to_vector<double>()[0]);
}

}  // namespace quire
