#include "layers/softmax_attention.h"

#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/rotary.h"
#include "layers/visibility.h"

namespace quire {

namespace {

constexpr double kQkNormEps = 1e-6;  // Memorizing Transformer code

// T5 buckets of a table whose entry n of count belongs to distance count - 1 - n.
Tensor bucket_index(const T5Config& config, int64_t count, Device device) {
  std::vector<int32_t> index;
  for (int64_t n = 0; n < count; ++n) {
    index.push_back(static_cast<int32_t>(t5_bucket(n + 1 - count, config.buckets, config.max_distance, false)));
  }
  return Tensor::from(index, {count}, device);
}

}  // namespace

SoftmaxAttention::SoftmaxAttention(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
                                   std::span<const MemoryConfig> memories, std::shared_ptr<PositionTables> tables)
    : config_(layer.attention),
      position_(layer.position),
      width_(model.width),
      heads_(model.heads),
      key_heads_(model.heads_of_keys()),
      head_size_(model.size_of_head()),
      dropout_(model.dropout.attention),
      position_dropout_(model.dropout.position),
      random_scope_(hash_scope(scope.path() + ".dropout")),
      query_(scope.child("query"), width_, heads_ * head_size_, Initialization(model).matrix(width_)),
      key_(scope.child("key"), width_, key_heads_ * head_size_, Initialization(model).matrix(width_)),
      value_(scope.child("value"), width_, key_heads_ * head_size_, Initialization(model).matrix(width_)),
      out_(scope.child("out"), heads_ * head_size_, width_, Initialization(model).residual(heads_ * head_size_)),
      tables_(std::move(tables)) {
  const Initialization initialization(model);
  if (position_ == Position::xl) {
    const Shape per_head{heads_, head_size_};
    relative_.emplace(scope.child("relative"), width_, heads_ * head_size_, initialization.matrix(width_));
    const Scope owner = config_.xl.share_biases ? scope.root().child("position") : scope;
    u_ = owner.param_without_decay("u", per_head, initialization.position_bias());
    v_ = owner.param_without_decay("v", per_head, initialization.position_bias());
  } else if (position_ == Position::t5) {
    bias_table_ = scope.param_without_decay("bias", {heads_, config_.t5.buckets},
                                            initialization.distance_bias(config_.t5.buckets));
  }
  if (config_.qk_norm) head_scale_ = scope.param("scale", {heads_}, Initializer::constant(1));
  if (config_.cache.kind == CacheKind::kv) {
    const LogOptions options{.filled_with_zeros = !config_.mask_empty_cache, .dtype = config_.cache.storage()};
    const Shape entry{key_heads_, head_size_};
    cached_keys_ = scope.state_log("cache.keys", entry, config_.cache_length(), options);
    cached_values_ = scope.state_log("cache.values", entry, config_.cache_length(), options);
  }
  for (size_t i = 0; i < memories.size(); ++i) {
    memories_.push_back(make_memory(scope.child("memory", static_cast<int64_t>(i)), memories[i],
                                    {.heads = heads_, .key_heads = key_heads_, .head_size = head_size_}));
  }
}

Variable SoftmaxAttention::heads_of(Tape& tape, const Linear& projection, const Variable& x, int64_t heads) const {
  return reshape(tape, projection(tape, x), {x.dim(0), x.dim(1), heads, head_size_});
}

// Positions count from the beginning of the subsequence, carried keys stand at -1, -2, ...: angles stay small however
// long a document is. Only differences matter, so a document that begins inside the row needs no count of its own.
void SoftmaxAttention::rotate(Tape& tape, AttentionVariables& x, const Tensor& cache_head) const {
  const Tensor& q = x.q.value();
  const int64_t before = x.cache_k.defined() ? x.cache_k.dim(1) : 0;
  ops::RotaryInputs settings;
  settings.table = tables_->rotary(before, q.dim(1), config_.rope.dims.value_or(head_size_), config_.rope.base,
                                   wide_type(q.dtype()), q.device());
  settings.origin = before;
  x.q = rotary(tape, x.q, settings);
  x.k = rotary(tape, x.k, settings);
  if (before == 0) return;
  settings.head = cache_head;
  x.cache_k = rotary(tape, x.cache_k, settings);
}

void SoftmaxAttention::add_position_terms(const Forward& f, AttentionVariables& x, int64_t reach) const {
  Tape& tape = f.tape;
  const DType dtype = x.q.value().dtype();
  const Device device = x.q.value().device();
  if (position_ == Position::xl) {
    Variable angles = Variable::constant(tables_->sinusoid(reach, width_, config_.xl.clamp, dtype, device));
    // One mask for all rows and layers, and so for all ranks and micro-batches: row 0 draws it.
    ops::DropoutKey key = f.dropout(hash_scope("position.dropout"), position_dropout_);
    key.first_row = 0;
    angles = reshape(tape, dropout(tape, reshape(tape, angles, {1, reach, width_}), {}, key), {reach, width_});
    x.r = reshape(tape, (*relative_)(tape, angles), {reach, heads_, head_size_});
    x.u = u_;
    x.v_bias = v_;
  } else if (position_ == Position::t5) {
    x.bias = gather_columns(tape, bias_table_, bucket_index(config_.t5, reach, device));
  } else if (position_ == Position::alibi) {
    x.bias = Variable::constant(tables_->alibi(heads_, reach, wide_type(dtype), device));
  }
}

Variable SoftmaxAttention::operator()(const Forward& f, const Variable& z, const Variable& carried_z,
                                      std::span<const int64_t> carried_length) const {
  Tape& tape = f.tape;
  const int64_t rows = z.dim(0);
  const int64_t tokens = z.dim(1);
  const Device device = z.value().device();

  AttentionVariables x;
  x.q = heads_of(tape, query_, z, heads_);
  x.k = heads_of(tape, key_, z, key_heads_);
  x.v = heads_of(tape, value_, z, key_heads_);
  if (config_.qk_norm) {
    x.q = l2_normalize(tape, x.q, kQkNormEps);
    x.k = l2_normalize(tape, x.k, kQkNormEps);
  }
  const MixerTensors mixer{x.q, x.k, x.v, {}};

  ops::AttentionInputs settings;
  std::vector<int64_t> carried(static_cast<size_t>(rows), 0);
  int64_t slots = 0;
  if (carried_z.defined()) {
    // Carried states are constant, the projections are not: W_k and W_v learn from them too.
    slots = carried_z.dim(1);
    x.cache_k = heads_of(tape, key_, carried_z, key_heads_);
    x.cache_v = heads_of(tape, value_, carried_z, key_heads_);
    if (config_.qk_norm) x.cache_k = l2_normalize(tape, x.cache_k, kQkNormEps);
    settings.cache_head = Tensor::zeros({rows}, DType::i32, device);  // newest in the last slot
    carried.assign(carried_length.begin(), carried_length.end());
  } else if (cached_keys_.defined()) {
    slots = config_.cache_length();
    carried = f.state.lengths(cached_keys_);
    x.cache_k = Variable::constant(f.state.ring(cached_keys_));
    x.cache_v = Variable::constant(f.state.ring(cached_values_));
    settings.cache_head = f.state.ring_head(cached_keys_);
  }
  settings.first_visible = Tensor::from(first_visible(f.batch, carried, config_.reach()), {rows, tokens}, device);
  settings.attend_self = config_.attend_self;
  settings.dropout = f.training ? dropout_ : 0;
  settings.key = f.key;
  settings.scope = random_scope_;
  settings.first_row = f.batch.first_row;
  settings.scale = config_.qk_norm ? 1.0 : 1.0 / std::sqrt(static_cast<double>(head_size_));

  int64_t reach = tokens + slots;  // entries of a table by distance
  if (const auto largest = config_.reach()) reach = std::min(reach, *largest + 1);
  add_position_terms(f, x, reach);
  if (position_ == Position::rope) rotate(tape, x, settings.cache_head);
  if (config_.qk_norm) {
    // (q.k + bias) |a_h|: the scale is applied after the bias is added.
    x.q = scale_heads(tape, x.q, head_scale_);
    if (x.bias.defined()) {
      x.bias =
          reshape(tape, scale_heads(tape, reshape(tape, x.bias, {1, heads_, reach}), head_scale_), {heads_, reach});
    }
  }
  Variable mixed = attention(tape, x, settings);
  if (cached_keys_.defined() && f.write_state) {
    f.state.append(cached_keys_, mixer.k.value());
    f.state.append(cached_values_, mixer.v.value());
  }
  for (const std::unique_ptr<Memory>& memory : memories_) {
    mixed = memory->combine(f, {mixer.q, mixer.k, mixer.v, mixed});
  }
  return out_(tape, reshape(tape, mixed, {rows, tokens, heads_ * head_size_}));
}

}  // namespace quire
