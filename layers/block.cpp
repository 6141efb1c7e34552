#include "layers/block.h"

#include "autograd/functions/basic.h"

namespace quire {

Block::Block(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
             std::span<const MemoryConfig> memories, std::shared_ptr<PositionTables> tables)
    : pre_(model.norm.placement == NormPlacement::pre),
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

Variable Block::operator()(const Forward& f, const Variable& x) const {
  Variable carried;
  std::vector<int64_t> carried_length;
  if (hidden_.defined()) {
    carried = Variable::constant(f.state.gather(hidden_));
    carried_length = f.state.lengths(hidden_);
    // Stored before the normalisation: it is repeated with today's parameters each time the states are read.
    if (f.write_state) f.state.append(hidden_, x.value());
    if (pre_) carried = attention_norm_(f.tape, carried);
  }
  const Variable mixed = attention_(f, pre_ ? attention_norm_(f.tape, x) : x, carried, carried_length);
  Variable h = dropout(f.tape, mixed, x, f.dropout(attention_dropout_scope_, dropout_));
  if (!pre_) h = attention_norm_(f.tape, h);
  const Variable inner = mlp_(f, pre_ ? mlp_norm_(f.tape, h) : h);
  const Variable y = dropout(f.tape, inner, h, f.dropout(mlp_dropout_scope_, dropout_));
  return pre_ ? y : mlp_norm_(f.tape, y);
}

}  // namespace quire
