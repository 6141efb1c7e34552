// Adafactor (Shazeer and Stern 2018, algorithms 4 and 5): the second moments of a matrix are kept as one number per row
// and one per column. Weight decay is decoupled, as in AdamW. The mean of updates is taken before the learning rate, so
// that a change of the rate acts at once.
#include <cmath>

#include "kernels/optimizer.h"
#include "trainers/optimizer/optimizer.h"

namespace quire {

namespace {

// Treats a parameter as a matrix: all leading axes are rows.
struct Matrix {
  int64_t rows = 1;
  int64_t columns = 1;
};

Matrix matrix_of(const Shape& shape) {
  if (shape.rank() < 2) return {1, shape.numel()};
  const int64_t columns = shape[shape.rank() - 1];
  return {shape.numel() / columns, columns};
}

class Adafactor : public Optimizer {
 public:
  Adafactor(const ParameterStore& store, const ParameterParts& parts, const OptimizerConfig& config)
      : store_(store), config_(config), settings_(parameter_settings(store, config)) {
    const DType dtype = store.values().dtype();
    const Device device = store.values().device();
    for (size_t i = 0; i < store.entries().size(); ++i) {
      const ParameterStore::Entry& entry = store.entries()[i];
      if (!holds(parts.mine(), entry)) continue;
      const Matrix matrix = matrix_of(entry.shape);
      Moments moments;
      moments.entry = i;
      if (entry.shape.rank() >= 2) {
        moments.row = Tensor::zeros({matrix.rows}, dtype, device);
        moments.column = Tensor::zeros({matrix.columns}, dtype, device);
      } else {
        moments.row = Tensor::zeros({matrix.columns}, dtype, device);
      }
      if (config.momentum) moments.mean = Tensor::zeros(entry.shape, dtype, device);
      moments_.push_back(std::move(moments));
    }
  }

  void update(int64_t update, double learning_rate, const Tensor& control) override {
    for (const Moments& moments : moments_) {
      const ParameterStore::Entry& entry = store_.entries()[moments.entry];
      const ParameterSettings& settings = settings_[moments.entry];
      const Matrix matrix = matrix_of(entry.shape);
      const Shape shape{matrix.rows, matrix.columns};
      ops::adafactor(ParameterStore::slice(store_.values(), entry).reshape(shape), moments.row, moments.column,
                     moments.mean.defined() ? moments.mean.reshape(shape) : Tensor(),
                     ParameterStore::slice(store_.gradients(), entry).reshape(shape), control,
                     {.learning_rate = learning_rate * settings.lr_scale,
                      .beta1 = config_.momentum.value_or(0),
                      .beta2 = 1.0 - std::pow(static_cast<double>(update), -config_.decay_exponent),
                      .eps1 = config_.eps1,
                      .eps2 = config_.eps2,
                      .update_clip = config_.update_clip,
                      .parameter_scale = config_.parameter_scale,
                      .decay = decay_of_step(config_, settings, learning_rate)});
    }
  }

  std::vector<Moment> moments() const override {
    std::vector<Moment> list;
    const auto add = [&](const std::string& name, const Tensor& values) {
      if (values.defined()) list.push_back({name, values.shape(), 0, values.numel(), values});
    };
    for (const Moments& moments : moments_) {
      const std::string& name = store_.entries()[moments.entry].name;
      add((moments.column.defined() ? "row." : "v.") + name, moments.row);
      add("column." + name, moments.column);
      add("m." + name, moments.mean);
    }
    return list;
  }

 private:
  struct Moments {
    size_t entry;   // index in the store
    Tensor row;     // [rows] for a matrix, [N] for a vector
    Tensor column;  // [columns], for a matrix
    Tensor mean;    // mean of updates; undefined without one
  };

  const ParameterStore& store_;
  OptimizerConfig config_;
  std::vector<ParameterSettings> settings_;
  std::vector<Moments> moments_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const ParameterStore& store, const ParameterParts& parts,
                                          const OptimizerConfig& config) {
  return std::make_unique<Adafactor>(store, parts, config);
}

}  // namespace quire
