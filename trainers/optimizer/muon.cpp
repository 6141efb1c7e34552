// Muon (Jordan et al. 2024, Liu et al. 2025): the momentum of a matrix is replaced by the nearest orthogonal matrix,
// times 0.2 sqrt(max(rows, columns)), so that updates have the root mean square of AdamW's, whose learning rate and
// weight decay carry over. AdamW updates everything that is no linear map inside the model: embeddings, the projection
// to the vocabulary, gains, biases, position terms. Matrices that stand below each other in one parameter are
// orthogonalised each by itself.
#include <algorithm>
#include <cmath>

#include "kernels/optimizer.h"
#include "trainers/optimizer/newton_schulz.h"
#include "trainers/optimizer/optimizer.h"

namespace quire {

namespace {

constexpr double kRootMeanSquare = 0.2;  // of AdamW's updates (Liu et al. 2025)
constexpr double kMomentum = 0.95;

class Muon : public Optimizer {
 public:
  Muon(const ParameterStore& store, const ParameterParts& parts, const OptimizerConfig& config)
      : store_(store), config_(config), settings_(parameter_settings(store, config)) {
    std::vector<ArenaRange> others;
    for (size_t i = 0; i < store.entries().size(); ++i) {
      const ParameterStore::Entry& entry = store.entries()[i];
      if (!holds(parts.mine(), entry)) continue;
      if (entry.matrices > 0) {
        matrices_.push_back({i, Tensor::zeros(entry.shape, store.values().dtype(), store.values().device())});
      } else {
        others.push_back({entry.offset, entry.offset + entry.shape.numel()});
      }
    }
    const auto earlier = [](const ArenaRange& a, const ArenaRange& b) { return a.begin < b.begin; };
    std::sort(others.begin(), others.end(), earlier);
    adamw_ = make_adamw(store, others, config);
  }

  void update(int64_t update, double learning_rate, const Tensor& control) override {
    for (const Matrix& matrix : matrices_) step(matrix, learning_rate, control);
    adamw_->update(update, learning_rate, control);
  }

  std::vector<Moment> moments() const override {
    std::vector<Moment> list = adamw_->moments();
    for (const Matrix& matrix : matrices_) {
      const Tensor& values = matrix.momentum;
      list.push_back({"m." + store_.entries()[matrix.entry].name, values.shape(), 0, values.numel(), values});
    }
    return list;
  }

 private:
  struct Matrix {
    size_t entry;     // index in the store
    Tensor momentum;  // of the parameter's shape
  };

  void step(const Matrix& matrix, double learning_rate, const Tensor& control) {
    const ParameterStore::Entry& entry = store_.entries()[matrix.entry];
    const ParameterSettings& settings = settings_[matrix.entry];
    const Tensor direction = Tensor::empty_like(matrix.momentum);
    ops::muon_direction(direction, matrix.momentum, ParameterStore::slice(store_.gradients(), entry), control,
                        config_.momentum.value_or(kMomentum), config_.nesterov);
    const int64_t rows = entry.shape[0] / entry.matrices;
    for (int64_t i = 0; i < entry.matrices; ++i) {
      orthogonalise(direction.slice(0, i * rows, (i + 1) * rows), config_.ns_steps);
    }
    const double scale = kRootMeanSquare * std::sqrt(static_cast<double>(std::max(rows, entry.shape[1])));
    ops::muon_update(store_.value(entry), direction, control, learning_rate * settings.lr_scale * scale,
                     decay_of_step(config_, settings, learning_rate));
  }

  const ParameterStore& store_;
  OptimizerConfig config_;
  std::vector<ParameterSettings> settings_;
  std::vector<Matrix> matrices_;
  std::unique_ptr<Optimizer> adamw_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const ParameterStore& store, const ParameterParts& parts,
                                     const OptimizerConfig& config) {
  return std::make_unique<Muon>(store, parts, config);
}

}  // namespace quire
