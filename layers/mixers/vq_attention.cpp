#include "layers/mixers/vq_attention.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/vq.h"
#include "layers/host_values.h"
#include "layers/visibility.h"

namespace quire {

namespace {

// Tables of a pass.
constexpr uint32_t kFirstVisible = hash_scope("vq.first_visible");
constexpr uint32_t kFirstInBlock = hash_scope("vq.first_in_block");
constexpr uint32_t kCaches = hash_scope("vq.caches");

int64_t value_size_of(const ModelConfig& model, const LayerConfig& layer) {
  return layer.attention.vq.value_size.value_or(model.size_of_head());
}

// Keys of a ring with today's codewords in the place of those they were stored with.
Tensor codewords_of(const Tensor& ring, const Tensor& codes, const Tensor& codebook) {
  const Tensor keys = Tensor::empty_like(ring);
  ops::lookup_codes(keys.reshape({ring.dim(0) * ring.dim(1), ring.dim(2), ring.dim(3)}),
                    codes.reshape({ring.dim(0) * ring.dim(1), ring.dim(2)}), codebook);
  return keys;
}

}  // namespace

VqAttention::VqAttention(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
                         std::shared_ptr<PositionTables> tables)
    : config_(layer.attention),
      blocks_{layer.attention.vq.block, layer.attention.vq_window(), layer.attention.vq.cache},
      heads_(model.heads),
      key_heads_(model.heads_of_keys()),
      head_size_(model.size_of_head()),
      value_size_(value_size_of(model, layer)),
      eps_(model.norm.eps),
      query_(scope.child("query"), model.width, heads_ * head_size_, Initialization(model).matrix(model.width)),
      key_(scope.child("key"), model.width, key_heads_ * head_size_, Initialization(model).matrix(model.width)),
      value_(scope.child("value"), model.width, key_heads_ * value_size_, Initialization(model).matrix(model.width)),
      gate_(config_.vq.gate ? std::optional<Linear>(std::in_place, scope.child("gate"), model.width,
                                                    heads_ * value_size_, Initialization(model).matrix(model.width))
                            : std::nullopt),
      out_(scope.child("out"), heads_ * value_size_, model.width, Initialization(model).residual(heads_ * value_size_)),
      position_terms_(scope, model, layer, std::move(tables)),
      codebook_(std::make_unique<Codebook>(scope.child("codebook"), config_.vq.codebook, key_heads_, config_.vq.codes,
                                           head_size_)) {
  const LogGroupId window = scope.state_logs("window", blocks_.window);
  window_keys_ = scope.state_log(window, "keys", {key_heads_, head_size_});
  window_values_ = scope.state_log(window, "values", {key_heads_, value_size_});
  window_codes_ = scope.state_log(window, "codes", {key_heads_}, DType::i32);
  if (!blocks_.cache) return;
  mean_ = scope.state_register("cache.mean", {key_heads_, config_.vq.codes, value_size_}, {.wide = true});
  count_ = scope.state_register("cache.count", {key_heads_, config_.vq.codes}, {.wide = true});
}

Variable VqAttention::normalised(Tape& tape, const Linear& projection, const Variable& z, int64_t heads) const {
  const Variable x = reshape(tape, projection(tape, z), {z.dim(0), z.dim(1), heads, head_size_});
  const std::vector<double> gains(static_cast<size_t>(head_size_), std::pow(static_cast<double>(head_size_), -0.25));
  const Tensor weight = tensor_of(gains, {head_size_}, wide_type(z.value().dtype()), z.value().device());
  return rms_norm(tape, x, Variable::constant(weight), eps_);
}

Variable VqAttention::operator()(const Forward& f, const Variable& z, const CarriedInputs&) const {
  Tape& tape = f.tape;
  const int64_t rows = z.dim(0);
  const int64_t tokens = z.dim(1);
  const Variable q = normalised(tape, query_, z, heads_);
  const Variable k = normalised(tape, key_, z, key_heads_);
  Variable v = config_.vq.activation == VqActivation::silu ? value_(tape, z, ops::Activation::silu) : value_(tape, z);
  v = reshape(tape, v, {rows, tokens, key_heads_, value_size_});

  const Tensor codebook = codebook_->codewords(z.value().dtype());
  const Tensor mask = token_mask(f);
  const Quantized quantized = quantize(tape, k, codebook, mask, config_.vq.straight_through);

  VqAttentionVariables x;
  const Tensor window_codes = f.state.stored_ring(window_codes_);
  x.keys.q = q;
  x.keys.k = quantized.keys;
  x.keys.v = v;
  Tensor carried_keys = f.state.ring(window_keys_);
  if (config_.vq.current_codewords) carried_keys = codewords_of(carried_keys, window_codes, codebook);
  x.keys.cache_k = Variable::constant(carried_keys);
  x.keys.cache_v = Variable::constant(f.state.ring(window_values_));
  const std::vector<int64_t> initial = f.state.initial_lengths(window_keys_.group);
  const auto table = [&](uint32_t kind, int64_t block, const Shape& shape, const auto& make) {
    std::vector<int64_t> numbers{block, blocks_.window, blocks_.cache ? 1 : 0};
    numbers.insert(numbers.end(), initial.begin(), initial.end());
    return f.tables->find({kind, numbers}, [&] { return Tensor::from(make(), shape, f.state.device()); });
  };
  const auto first_visible = [&] { return blocks_.first_visible(f.batch, f.state.segments(), initial); };
  VqAttentionSettings settings;
  settings.block = std::min(blocks_.block, tokens);
  settings.through_cache = config_.vq.through_cache;
  settings.attention.cache_head = f.state.ring_head(window_keys_.group);
  settings.attention.first_visible = table(kFirstVisible, blocks_.block, {rows, tokens}, first_visible);
  if (!config_.vq.through_cache) {
    settings.first_in_block = table(kFirstInBlock, blocks_.block, {rows, tokens}, [&] {
      std::vector<int32_t> own = first_visible();
      for (int64_t i = 0; i < rows * tokens; ++i) {
        const int64_t begin = i % tokens / settings.block * settings.block;
        own[static_cast<size_t>(i)] = std::max(own[static_cast<size_t>(i)], static_cast<int32_t>(begin));
      }
      return own;
    });
  }
  settings.attention.attend_self = config_.attend_self;
  position_terms_.add(f, x.keys, blocks_.window + 1, std::pow(static_cast<double>(head_size_), -0.25));
  if (blocks_.cache) {
    x.codebook = codebook;
    const VqBlocks blocks{settings.block, blocks_.window, true};
    const Shape by_block{2, rows, (tokens + blocks.block - 1) / blocks.block + 1};
    const Tensor caches =
        table(kCaches, blocks.block, by_block, [&] { return blocks.caches(f.batch, f.state.segments(), initial); });
    settings.caches.codes = quantized.codes;
    settings.caches.window_codes = window_codes;
    settings.caches.mean = f.state.current(mean_);
    settings.caches.count = f.state.current(count_);
    settings.caches.origin = caches.select(0, 0);
    settings.caches.limit = caches.select(0, 1);
    settings.caches.reduction = config_.vq.reduction;
  }
  const VqAttentionResult mixed = vq_attention(tape, x, settings);

  if (f.write_state) {
    f.state.append(window_keys_, quantized.keys.value());
    f.state.append(window_values_, v.value());
    f.state.append(window_codes_, quantized.codes);
    if (blocks_.cache) {
      f.state.put(mean_, mixed.mean);
      f.state.put(count_, mixed.count);
    }
    if (f.training) codebook_->count(f.batch, k.value(), quantized.codes, mask);
  }
  if (f.commitment.defined()) ops::add(f.commitment, f.commitment, quantized.error.value(), 1, 1);

  Variable y = reshape(tape, mixed.out, {rows, tokens, heads_ * value_size_});
  if (gate_) y = swiglu(tape, (*gate_)(tape, z), y);
  y = out_(tape, y);
  if (f.training && config_.vq.commitment > 0) {
    const double seed = config_.vq.commitment_mean == CommitmentMean::tokens ? f.commitment_seeds.by_token
                                                                             : f.commitment_seeds.by_position;
    y = with_loss(tape, y, quantized.error, config_.vq.commitment * seed);
  }
  return y;
}

}  // namespace quire
