// Linear maps, normalisation and feed-forward layers.
#pragma once

#include "autograd/functions/basic.h"
#include "layers/config/model_config.h"
#include "layers/parameters/scope.h"
#include "layers/parts/initialization.h"
#include "layers/parts/part.h"

namespace quire {

class Linear {
 public:
  // y = x W^T (+ b) (+ residual); W [out, in].
  Linear(const Scope& scope, int64_t in, int64_t out, Initializer initializer, bool bias = false);
  Variable operator()(Tape& tape, const Variable& x, const Variable& residual = {}) const;
  Variable operator()(Tape& tape, const Variable& x, ops::Activation activation) const;
  LinearWeights weights() const { return {weight_, bias_}; }

 private:
  Parameter weight_;
  Parameter bias_;
};

class Norm {
 public:
  Norm(const Scope& scope, const ModelConfig& model);
  Variable operator()(Tape& tape, const Variable& x) const;

 private:
  NormKind kind_;
  double eps_;
  Parameter weight_;
  Parameter bias_;
};

class Mlp final : public Part {
 public:
  Mlp(const Scope& scope, const ModelConfig& model);
  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return true; }

 private:
  MlpKind kind_;
  bool gated_;
  uint32_t random_scope_;
  double dropout_;
  std::vector<Linear> in_;  // gate and up, or one
  Linear out_;
};

}  // namespace quire
