// The initial weights of a model, by what a parameter is.
#pragma once

#include "layers/config/model_config.h"
#include "layers/parameters/parameter_store.h"

namespace quire {

class Initialization {
 public:
  explicit Initialization(const ModelConfig& model);

  Initializer matrix(int64_t inputs) const;          // of a projection
  Initializer residual(int64_t inputs) const;        // of one whose result is added to the residual stream
  Initializer embedding() const;                     // rows of width values
  Initializer head() const;                          // the projection to the vocabulary where it has its own
  Initializer gain() const;                          // of a normalisation
  Initializer position_bias() const;                 // Transformer-XL: u and v
  Initializer distance_bias(int64_t buckets) const;  // T5: one line of buckets per head

 private:
  InitializationKind kind_;
  double std_;
  double residual_factor_;  // GPT-2 (Radford et al. 2019): 1 / sqrt(2 layers)
  int64_t width_;
  std::optional<double> embedding_std_;
  std::optional<double> position_bias_std_;
};

}  // namespace quire
