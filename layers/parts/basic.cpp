#include "layers/parts/basic.h"

#include "autograd/functions/norm.h"
#include "core/check.h"

namespace quire {

Linear::Linear(const Scope& scope, int64_t in, int64_t out, Initializer initializer, bool bias)
    : weight_(scope.matrix("weight", out, in, initializer)) {
  if (bias) bias_ = scope.param("bias", {out}, Initializer::constant(0));
}

Variable Linear::operator()(Tape& tape, const Variable& x, const Variable& residual) const {
  return linear(tape, x, weight_, bias_, residual);
}

Variable Linear::operator()(Tape& tape, const Variable& x, ops::Activation activation) const {
  return linear_activation(tape, x, weight_, bias_, activation);
}

Norm::Norm(const Scope& scope, const ModelConfig& model)
    : kind_(model.norm.kind),
      eps_(model.norm.eps),
      weight_(scope.param("weight", {model.width}, Initialization(model).gain())) {
  if (kind_ != NormKind::rms) bias_ = scope.param("bias", {model.width}, Initializer::constant(0));
}

Variable Norm::operator()(Tape& tape, const Variable& x) const {
  if (kind_ == NormKind::layer) return layer_norm(tape, x, weight_, bias_, eps_);
  const Variable y = rms_norm(tape, x, weight_, eps_);
  return kind_ == NormKind::rms ? y : add_bias(tape, y, bias_);
}

Variable PartInput::normalised(Tape& tape) const {
  return norm == nullptr ? x : (*norm)(tape, x);
}

namespace {

ops::Activation activation_of(MlpKind kind) {
  switch (kind) {
    case MlpKind::swiglu:
      return ops::Activation::silu;
    case MlpKind::geglu_erf:
    case MlpKind::gelu_erf:
      return ops::Activation::gelu_erf;
    case MlpKind::relu:
      return ops::Activation::relu;
    case MlpKind::geglu:
    case MlpKind::gelu:
      return ops::Activation::gelu;
    case MlpKind::none:
      break;
  }
  fail(ErrorKind::internal, "mlp: kind none has no activation");
}

}  // namespace

Mlp::Mlp(const Scope& scope, const ModelConfig& model)
    : kind_(model.mlp.kind),
      gated_(model.mlp.is_gated()),
      random_scope_(hash_scope(scope.path() + ".dropout")),
      dropout_(model.dropout.mlp),
      out_(scope.child("down"), model.mlp.hidden, model.width, Initialization(model).residual(model.mlp.hidden),
           model.mlp.bias) {
  const Initializer initializer = Initialization(model).matrix(model.width);
  const auto add_input = [&](const char* name) {
    in_.emplace_back(scope.child(name), model.width, model.mlp.hidden, initializer, model.mlp.bias);
  };
  if (gated_) add_input("gate");
  add_input("up");
}

Variable Mlp::operator()(const Forward& f, const PartInput& input) const {
  const Variable x = input.normalised(f.tape);
  const ops::DropoutKey dropped = f.dropout(random_scope_, dropout_);
  Variable inner;
  if (kind_ == MlpKind::swiglu) {
    inner = swiglu(f.tape, in_[0](f.tape, x), in_[1](f.tape, x));
  } else if (gated_) {
    const Variable gate = in_[0](f.tape, x, activation_of(kind_));
    inner = multiply(f.tape, gate, in_[1](f.tape, x));
  } else {
    const ops::Activation kind = activation_of(kind_);
    if (dropped.probability == 0)
      return feed_forward(f.tape, x, in_[0].weights(), kind, out_.weights(), input.residual);
    inner = in_[0](f.tape, x, kind);
  }
  return out_(f.tape, dropout(f.tape, inner, {}, dropped), input.residual);
}

}  // namespace quire
