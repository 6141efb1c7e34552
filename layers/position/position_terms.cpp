#include "layers/position/position_terms.h"

#include "autograd/functions/basic.h"
#include "layers/pass/visibility.h"

namespace quire {

namespace {

// T5 buckets of a table whose entry n of count belongs to distance count - 1 - n.
Tensor bucket_index(const T5Config& config, int64_t count, Device device) {
  std::vector<int32_t> index;
  for (int64_t n = 0; n < count; ++n) {
    index.push_back(static_cast<int32_t>(t5_bucket(n + 1 - count, config.buckets, config.max_distance, false)));
  }
  return Tensor::from(index, {count}, device);
}

Variable scaled(Tape& tape, const Variable& x, double factor) {
  return factor == 1 ? x : scale(tape, x, factor);
}

}  // namespace

PositionTerms::PositionTerms(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
                             std::shared_ptr<PositionTables> tables)
    : position_(layer.position.kind),
      xl_(layer.position.xl),
      t5_(layer.position.t5),
      width_(model.width),
      heads_(model.heads),
      head_size_(model.size_of_head()),
      dropout_(model.dropout.position),
      tables_(std::move(tables)) {
  const Initialization initialization(model);
  if (position_ == Position::xl) {
    const Shape per_head{heads_, head_size_};
    relative_.emplace(scope.child("relative"), width_, heads_ * head_size_, initialization.matrix(width_));
    const Scope owner = xl_.share_biases ? scope.root().child("position") : scope;
    u_ = owner.param_without_decay("u", per_head, initialization.position_bias());
    v_ = owner.param_without_decay("v", per_head, initialization.position_bias());
  } else if (position_ == Position::t5) {
    bias_table_ = scope.param_without_decay("bias", {heads_, t5_.buckets}, initialization.distance_bias(t5_.buckets));
  }
}

void PositionTerms::add(const Forward& f, AttentionVariables& x, int64_t reach, double factor) const {
  Tape& tape = f.tape;
  const DType dtype = x.q.value().dtype();
  const Device device = x.q.value().device();
  if (position_ == Position::xl) {
    Variable angles = Variable::constant(tables_->sinusoid(reach, width_, xl_.clamp, xl_.base, dtype, device));
    // One mask for all rows and layers, and so for all ranks and micro-batches: row 0 draws it.
    ops::DropoutKey key = f.dropout(hash_scope("position.dropout"), dropout_);
    key.first_row = 0;
    key.key = f.position_key;
    angles = reshape(tape, dropout(tape, reshape(tape, angles, {1, reach, width_}), {}, key), {reach, width_});
    x.r = reshape(tape, scaled(tape, (*relative_)(tape, angles), factor), {reach, heads_, head_size_});
    x.u = scaled(tape, u_, factor);
    x.v_bias = scaled(tape, v_, factor);
  } else if (position_ == Position::t5) {
    const Tensor index =
        f.table("t5_buckets", {t5_.buckets, t5_.max_distance, reach}, [&] { return bucket_index(t5_, reach, device); });
    x.bias = gather_columns(tape, bias_table_, index);
  } else if (position_ == Position::alibi) {
    x.bias = Variable::constant(tables_->alibi(heads_, reach, wide_type(dtype), device));
  }
}

}  // namespace quire
