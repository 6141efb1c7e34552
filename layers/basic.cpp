#include "layers/basic.h"

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"

namespace quire {

Linear::Linear(const Scope& scope, int64_t in, int64_t out, double std, bool bias)
    : weight_(scope.param("weight", {out, in}, Initializer::normal(std))) {
  if (bias) bias_ = scope.param("bias", {out}, Initializer::constant(0));
}

Variable Linear::operator()(Tape& tape, const Variable& x) const {
  return linear(tape, x, weight_, bias_);
}

Norm::Norm(const Scope& scope, int64_t width, const NormConfig& config)
    : kind_(config.kind), eps_(config.eps), weight_(scope.param("weight", {width}, Initializer::constant(1))) {
  if (kind_ == NormKind::layer) bias_ = scope.param("bias", {width}, Initializer::constant(0));
}

Variable Norm::operator()(Tape& tape, const Variable& x) const {
  return kind_ == NormKind::rms ? rms_norm(tape, x, weight_, eps_) : layer_norm(tape, x, weight_, bias_, eps_);
}

Mlp::Mlp(const Scope& scope, int64_t width, const MlpConfig& config, double std, double residual_std, double dropout)
    : kind_(config.kind),
      random_scope_(hash_scope(scope.path() + ".dropout")),
      dropout_(dropout),
      out_(scope.child("down"), config.hidden, width, residual_std, config.bias) {
  if (kind_ == MlpKind::swiglu) in_.emplace_back(scope.child("gate"), width, config.hidden, std, config.bias);
  in_.emplace_back(scope.child("up"), width, config.hidden, std, config.bias);
}

Variable Mlp::operator()(const Forward& f, const Variable& x) const {
  Variable inner;
  if (kind_ == MlpKind::swiglu) {
    inner = swiglu(f.tape, in_[0](f.tape, x), in_[1](f.tape, x));
  } else {
    inner =
        activation(f.tape, in_[0](f.tape, x), kind_ == MlpKind::relu ? ops::Activation::relu : ops::Activation::gelu);
  }
  return out_(f.tape, dropout(f.tape, inner, {}, f.dropout(random_scope_, dropout_)));
}

}  // namespace quire
