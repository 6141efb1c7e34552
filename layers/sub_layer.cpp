#include "layers/sub_layer.h"

#include "autograd/functions/basic.h"

namespace quire {

SubLayer::SubLayer(const Scope& block, const ModelConfig& model, const SubLayerSpec& spec)
    : pre_(model.norm.placement == NormPlacement::pre),
      recomputes_(model.recompute == spec.recomputed),
      dropout_(model.dropout.residual),
      dropout_scope_(hash_scope(block.path() + "." + spec.name + ".residual")),
      norm_(block.child(spec.name + "_norm"), model) {}

void SubLayer::make_part(const Scope& block, const SubLayerSpec& spec) {
  recomputed_.begin(block.declared());
  part_ = spec.make(block.child(spec.name));
  recomputed_.end(block.declared());
}

Variable SubLayer::added(const Forward& f, const Variable& x) const {
  if (pre_) return (*part_)(f, {norm_(f.tape, x), x, &norm_});
  return (*part_)(f, {x, x, nullptr});
}

Variable SubLayer::operator()(const Forward& f, const Variable& x, const Tensor& kept) const {
  Variable y = recomputes_
                   ? recomputed_(f, x, [this](const Forward& pass, const Variable& in) { return added(pass, in); })
                   : added(f, x);
  if (kept.defined()) {
    const Shape shape = y.shape();
    const Variable by_row = reshape(f.tape, y, {1, shape[0], shape[1] * shape[2]});
    y = reshape(f.tape, scale_heads(f.tape, by_row, Variable::constant(kept)), shape);
  }
  y = dropout(f.tape, y, x, f.dropout(dropout_scope_, dropout_));
  return pre_ ? y : norm_(f.tape, y);
}

}  // namespace quire
