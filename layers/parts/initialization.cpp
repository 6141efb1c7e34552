#include "layers/parts/initialization.h"

#include <cmath>

namespace quire {

namespace {

// A variance of 1 / inputs keeps products at the size of their inputs. The cut is at three deviations, as in recent
// trainings; without it a few of many million draws would be five or six deviations off.
constexpr double kCut = 3;

Initializer by_inputs(int64_t inputs) {
  return {0, 1 / std::sqrt(static_cast<double>(inputs)), kCut};
}

}  // namespace

Initialization::Initialization(const ModelConfig& model)
    : kind_(model.initialization.kind),
      std_(model.initialization.std.value_or(0.02)),
      residual_factor_(model.initialization.scale_residual.value_or(kind_ != InitializationKind::transformer_xl)
                           ? 1 / std::sqrt(2.0 * static_cast<double>(model.layers))
                           : 1),
      width_(model.width),
      embedding_std_(model.initialization.embedding_std),
      position_bias_std_(model.initialization.position_bias_std) {}

Initializer Initialization::matrix(int64_t inputs) const {
  return kind_ == InitializationKind::fan_in ? by_inputs(inputs) : Initializer::normal(std_);
}

Initializer Initialization::residual(int64_t inputs) const {
  Initializer initializer = matrix(inputs);
  initializer.std *= residual_factor_;
  return initializer;
}

Initializer Initialization::embedding() const {
  return embedding_std_ ? Initializer::normal(*embedding_std_) : head();
}

Initializer Initialization::head() const {
  return matrix(width_);
}

Initializer Initialization::gain() const {
  return kind_ == InitializationKind::transformer_xl ? Initializer{1, std_, 0} : Initializer::constant(1);
}

Initializer Initialization::position_bias() const {
  // A fan-in says nothing about a vector that is added to queries; Transformer-XL's own value.
  return Initializer::normal(position_bias_std_.value_or(std_));
}

Initializer Initialization::distance_bias(int64_t buckets) const {
  // Variance scaling by the buckets of a head, as in the published code of Memorizing Transformer.
  return kind_ == InitializationKind::fan_in ? Initializer::normal(1 / std::sqrt(static_cast<double>(buckets)))
                                             : Initializer::normal(std_);
}

}  // namespace quire
