// AdamW: two moments for every weight, updated in few long runs of the arena.
#include <algorithm>

#include "kernels/optimizer.h"
#include "trainers/optimizer/optimizer.h"

namespace quire {

namespace {

// A run of parameters with the same settings, alignment gaps included: they hold zeros and stay zero.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  double weight_decay = 0;
  double lr_scale = 1;
};

std::vector<Range> ranges_of(const ParameterStore& store, const OptimizerConfig& config) {
  const std::vector<ParameterSettings> settings = parameter_settings(store, config);
  std::vector<Range> ranges;
  for (size_t i = 0; i < settings.size(); ++i) {
    const int64_t begin = store.entries()[i].offset;
    ranges.push_back({begin, 0, settings[i].weight_decay, settings[i].lr_scale});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> merged;
  for (size_t i = 0; i < ranges.size(); ++i) {
    ranges[i].end = i + 1 < ranges.size() ? ranges[i + 1].begin : store.values().numel();
    const bool goes_on = !merged.empty() && merged.back().weight_decay == ranges[i].weight_decay &&
                         merged.back().lr_scale == ranges[i].lr_scale;
    if (goes_on) {
      merged.back().end = ranges[i].end;
    } else {
      merged.push_back(ranges[i]);
    }
  }
  return merged;
}

class AdamW : public Optimizer {
 public:
  AdamW(const ParameterStore& store, const OptimizerConfig& config)
      : store_(store),
        config_(config),
        ranges_(ranges_of(store, config)),
        first_(Tensor::zeros(store.values().shape(), store.values().dtype(), store.values().device())),
        second_(Tensor::zeros(store.values().shape(), store.values().dtype(), store.values().device())) {}

  void update(int64_t update, double learning_rate, const Tensor& control) override {
    for (const Range& range : ranges_) {
      const auto part = [&](const Tensor& arena) { return arena.slice(0, range.begin, range.end); };
      ops::adamw(part(store_.values()), part(first_), part(second_), part(store_.gradients()), control,
                 {.learning_rate = learning_rate * range.lr_scale,
                  .beta1 = config_.betas[0],
                  .beta2 = config_.betas[1],
                  .eps = config_.eps,
                  .decay = decay_of_step(config_, {range.weight_decay, range.lr_scale}, learning_rate),
                  .step = update});
    }
  }

  std::vector<NamedTensor> save() const override {
    std::vector<NamedTensor> tensors;
    for (const ParameterStore::Entry& entry : store_.entries()) {
      tensors.push_back({"m." + entry.name, ParameterStore::slice(first_, entry)});
      tensors.push_back({"v." + entry.name, ParameterStore::slice(second_, entry)});
    }
    return tensors;
  }

 private:
  const ParameterStore& store_;
  OptimizerConfig config_;
  std::vector<Range> ranges_;
  Tensor first_;
  Tensor second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const ParameterStore& store, const OptimizerConfig& config) {
  return std::make_unique<AdamW>(store, config);
}

}  // namespace quire
