#include "layers/block.h"

#include "autograd/functions/basic.h"
#include "autograd/recompute.h"
#include "layers/host_values.h"
#include "layers/mixers/softmax_attention.h"
#include "layers/mixers/vq_attention.h"

namespace quire {

namespace {

std::unique_ptr<Mixer> make_mixer(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
                                  std::span<const MemoryConfig> memories, std::shared_ptr<PositionTables> tables) {
  if (layer.attention.kind == MixerKind::vq) {
    return std::make_unique<VqAttention>(scope, model, layer, std::move(tables));
  }
  return std::make_unique<SoftmaxAttention>(scope, model, layer, memories, std::move(tables));
}

}  // namespace

Block::Block(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
             std::span<const MemoryConfig> memories, std::shared_ptr<PositionTables> tables)
    : pre_(model.norm.placement == NormPlacement::pre),
      recompute_(model.recompute),
      dropout_(model.dropout.residual),
      attention_dropout_scope_(hash_scope(scope.path() + ".attention.residual")),
      mlp_dropout_scope_(hash_scope(scope.path() + ".mlp.residual")),
      layer_dropout_(model.dropout.layer),
      attention_norm_(scope.child("attention_norm"), model) {
  const bool fed = model.mlp.kind != MlpKind::none;
  if (fed) mlp_norm_.emplace(scope.child("mlp_norm"), model);
  attention_ = make_mixer(scope.child("attention"), model, layer, memories, std::move(tables));
  if (fed) mlp_.emplace(scope.child("mlp"), model);
  if (layer.attention.cache.kind == CacheKind::hidden) {
    hidden_ = scope.state_log(scope.state_logs("cache", layer.attention.cache_length()), "hidden", {model.width},
                              layer.attention.cache.storage());
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
    carried_length = f.state.initial_lengths(hidden_.group);
    // Stored before the normalisation: it is repeated with today's parameters each time the states are read.
    if (f.write_state) f.state.append(hidden_, x.value());
    if (pre_) carried = attention_norm_(f.tape, carried);
  }
  return (*attention_)(f, pre_ ? attention_norm_(f.tape, x) : x, {carried, carried_length});
}

Variable Block::fed(const Forward& f, const Variable& h) const {
  return (*mlp_)(f, pre_ ? (*mlp_norm_)(f.tape, h) : h);
}

Variable Block::sum(const Forward& f, const Variable& added, const Variable& x, uint32_t scope) const {
  Variable kept = added;
  if (f.training && layer_dropout_ > 0) {
    const Shape shape = added.shape();
    const auto threshold = static_cast<uint64_t>(layer_dropout_ * 4294967296.0);
    std::vector<double> factors;
    // One draw for all that the block adds to a row.
    for (int64_t r = 0; r < shape[0]; ++r) {
      const auto row = static_cast<uint32_t>(f.batch.first_row + r);
      const auto bits = philox(f.key, attention_dropout_scope_ + 1, row, 0, 0);
      factors.push_back(bits[0] >= threshold ? 1 / (1 - layer_dropout_) : 0.0);
    }
    const Tensor factor = tensor_of(factors, {shape[0]}, wide_type(added.value().dtype()), added.value().device());
    const Variable by_row = reshape(f.tape, added, {1, shape[0], shape[1] * shape[2]});
    kept = reshape(f.tape, scale_heads(f.tape, by_row, Variable::constant(factor)), shape);
  }
  return dropout(f.tape, kept, x, f.dropout(scope, dropout_));
}

Variable Block::run(const Forward& f, const Variable& x) const {
  const Variable attended = call(&Block::mixed, Recompute::attention, f, x);
  Variable h = sum(f, attended, x, attention_dropout_scope_);
  if (!pre_) h = attention_norm_(f.tape, h);
  if (!mlp_) return h;
  const Variable inner = call(&Block::fed, Recompute::mlp, f, h);
  const Variable y = sum(f, inner, h, mlp_dropout_scope_);
  return pre_ ? y : (*mlp_norm_)(f.tape, y);
}

Variable Block::operator()(const Forward& f, const Variable& x) const {
  return call(&Block::run, Recompute::blocks, f, x);
}

}  // namespace quire
