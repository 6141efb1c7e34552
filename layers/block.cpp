#include "layers/block.h"

#include "autograd/functions/basic.h"
#include "autograd/recompute.h"

namespace quire {

Block::Block(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
             std::span<const MemoryConfig> memories, std::shared_ptr<PositionTables> tables)
    : pre_(model.norm.placement == NormPlacement::pre),
      recompute_(model.recompute),
      dropout_(model.dropout.residual),
      attention_dropout_scope_(hash_scope(scope.path() + ".attention.residual")),
      mlp_dropout_scope_(hash_scope(scope.path() + ".mlp.residual")),
      attention_norm_(scope.child("attention_norm"), model),
      mlp_norm_(scope.child("mlp_norm"), model),
      attention_(scope.child("attention"), model, layer, memories, std::move(tables)),
      mlp_(scope.child("mlp"), model) {
  if (layer.attention.cache.kind == CacheKind::hidden) {
    hidden_ = scope.state_log("cache.hidden", {model.width}, layer.attention.cache_length(),
                              {.dtype = layer.attention.cache.storage()});
  }
}

Variable Block::call(Part part, Recompute when, const Forward& f, const Variable& x) const {
  if (recompute_ != when) return (this->*part)(f, x);
  return recompute(f.tape, {x}, [this, part, f](Tape& tape, const std::vector<Variable>& inputs, bool again) {
    return (this->*part)(f.on(tape, again), inputs[0]);
  });
}

Variable Block::mixed(const Forward& f, const Variable& x) const {
  Variable carried;
  std::vector<int64_t> carried_length;
  if (hidden_.defined()) {
    carried = Variable::constant(f.state.gather(hidden_));
    carried_length = f.state.lengths(hidden_);
    // Stored before the normalisation: it is repeated with today's parameters each time the states are read.
    if (f.write_state) f.state.append(hidden_, x.value());
    if (pre_) carried = attention_norm_(f.tape, carried);
  }
  return attention_(f, pre_ ? attention_norm_(f.tape, x) : x, carried, carried_length);
}

Variable Block::fed(const Forward& f, const Variable& h) const {
  return mlp_(f, pre_ ? mlp_norm_(f.tape, h) : h);
}

Variable Block::run(const Forward& f, const Variable& x) const {
  const Variable attended = call(&Block::mixed, Recompute::attention, f, x);
  Variable h = dropout(f.tape, attended, x, f.dropout(attention_dropout_scope_, dropout_));
  if (!pre_) h = attention_norm_(f.tape, h);
  const Variable inner = call(&Block::fed, Recompute::mlp, f, h);
  const Variable y = dropout(f.tape, inner, h, f.dropout(mlp_dropout_scope_, dropout_));
  return pre_ ? y : mlp_norm_(f.tape, y);
}

Variable Block::operator()(const Forward& f, const Variable& x) const {
  return call(&Block::run, Recompute::blocks, f, x);
}

}  // namespace quire
