#include "layers/mixers/vq_attention.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/vq.h"
#include "layers/mechanism/mechanism_list.h"
#include "layers/pass/auxiliary_loss.h"
#include "layers/pass/host_values.h"
#include "layers/pass/visibility.h"

namespace quire {

namespace {

const VqConfig& options(const Place& place) {
  return place.options.get<VqConfig>();
}

int64_t value_size_of(const Place& place) {
  return options(place).value_size.value_or(place.model.size_of_head());
}

// Tokens before a block that are seen one by one.
int64_t window_of(const Place& place) {
  return options(place).window.value_or(options(place).block);
}

Linear projection(const Scope& scope, const char* name, const Place& place, int64_t outputs) {
  const int64_t width = place.model.width;
  return {scope.child(name), width, outputs, Initialization(place.model).matrix(width)};
}

// Keys of a ring with today's codewords in the place of those they were stored with.
Tensor codewords_of(const Tensor& ring, const Tensor& codes, const Tensor& codebook) {
  const Tensor keys = Tensor::empty_like(ring);
  ops::lookup_codes(keys.reshape({ring.dim(0) * ring.dim(1), ring.dim(2), ring.dim(3)}),
                    codes.reshape({ring.dim(0) * ring.dim(1), ring.dim(2)}), codebook);
  return keys;
}

}  // namespace

VqAttention::VqAttention(const Scope& scope, const Place& place, const Surroundings& around)
    : config_(options(place)),
      blocks_{config_.block, window_of(place), config_.compressive_cache},
      heads_(place.model.heads),
      key_heads_(place.model.heads_of_keys()),
      head_size_(place.model.size_of_head()),
      value_size_(value_size_of(place)),
      eps_(place.model.norm.eps),
      query_(projection(scope, "query", place, heads_ * head_size_)),
      key_(projection(scope, "key", place, key_heads_ * head_size_)),
      value_(projection(scope, "value", place, key_heads_ * value_size_)),
      gate_(config_.gate ? std::optional(projection(scope, "gate", place, heads_ * value_size_)) : std::nullopt),
      out_(scope.child("out"), heads_ * value_size_, place.model.width,
           Initialization(place.model).residual(heads_ * value_size_)),
      position_terms_(scope, place.model, place.layer, around.tables),
      codebook_(
          std::make_unique<Codebook>(scope.child("codebook"), config_.codebook, key_heads_, config_.codes, head_size_)),
      commitment_(scope.loss_term("commitment", config_.commitment,
                                  config_.commitment_mean == CommitmentMean::tokens ? count_tokens : count_positions)) {
  if (config_.learned_scale) scale_ = scope.param("scale", {heads_}, Initializer::constant(1));
  scope.learner(*codebook_);
  const LogGroupId window = scope.state_logs("window", blocks_.window);
  window_keys_ = scope.state_log(window, "keys", {key_heads_, head_size_});
  window_values_ = scope.state_log(window, "values", {key_heads_, value_size_});
  window_codes_ = scope.state_log(window, "codes", {key_heads_}, DType::i32);
  if (!blocks_.cache) return;
  mean_ = scope.state_register("cache.mean", {key_heads_, config_.codes, value_size_}, {.wide = true});
  count_ = scope.state_register("cache.count", {key_heads_, config_.codes}, {.wide = true});
}

Variable VqAttention::normalised(Tape& tape, const Linear& projection, const Variable& z, int64_t heads) const {
  const Variable x = reshape(tape, projection(tape, z), {z.dim(0), z.dim(1), heads, head_size_});
  const std::vector<double> gains(static_cast<size_t>(head_size_), std::pow(static_cast<double>(head_size_), -0.25));
  const Tensor weight = tensor_of(gains, {head_size_}, wide_type(z.value().dtype()), z.value().device());
  return rms_norm(tape, x, Variable::constant(weight), eps_);
}

Variable VqAttention::operator()(const Forward& f, const PartInput& input) const {
  Tape& tape = f.tape;
  const Variable z = input.normalised(tape);
  const int64_t rows = z.dim(0);
  const int64_t tokens = z.dim(1);
  Variable q = normalised(tape, query_, z, heads_);
  if (config_.learned_scale) q = scale_heads(tape, q, scale_);
  const Variable k = normalised(tape, key_, z, key_heads_);
  Variable v = config_.activation == VqActivation::silu ? value_(tape, z, ops::Activation::silu) : value_(tape, z);
  v = reshape(tape, v, {rows, tokens, key_heads_, value_size_});

  const Tensor codebook = codebook_->codewords(z.value().dtype());
  const Tensor mask = token_mask(f);
  const Quantized quantized = quantize(tape, k, codebook, mask, config_.straight_through);

  VqAttentionVariables x;
  const Tensor window_codes = f.state.stored_ring(window_codes_);
  x.keys.q = q;
  x.keys.k = quantized.keys;
  x.keys.v = v;
  Tensor carried_keys = f.state.ring(window_keys_);
  if (config_.current_codewords) carried_keys = codewords_of(carried_keys, window_codes, codebook);
  x.keys.cache_k = Variable::constant(carried_keys);
  x.keys.cache_v = Variable::constant(f.state.ring(window_values_));
  const std::vector<int64_t> initial = f.state.initial_lengths(window_keys_.group);
  const auto table = [&](const char* name, int64_t block, const Shape& shape, const auto& make) {
    std::vector<int64_t> numbers{block, blocks_.window, blocks_.cache ? 1 : 0};
    numbers.insert(numbers.end(), initial.begin(), initial.end());
    return f.table(name, numbers, [&] { return Tensor::from(make(), shape, f.state.device()); });
  };
  const auto first_visible = [&] { return blocks_.first_visible(f.batch, f.state.segments(), initial); };
  VqAttentionSettings settings;
  settings.block = std::min(blocks_.block, tokens);
  settings.through_cache = config_.cache_gradient;
  settings.attention.cache_head = f.state.ring_head(window_keys_.group);
  settings.attention.first_visible = table("vq.first_visible", blocks_.block, {rows, tokens}, first_visible);
  if (!config_.cache_gradient) {
    settings.first_in_block = table("vq.first_in_block", blocks_.block, {rows, tokens}, [&] {
      std::vector<int32_t> own = first_visible();
      for (int64_t i = 0; i < rows * tokens; ++i) {
        const int64_t begin = i % tokens / settings.block * settings.block;
        own[static_cast<size_t>(i)] = std::max(own[static_cast<size_t>(i)], static_cast<int32_t>(begin));
      }
      return own;
    });
  }
  position_terms_.add(f, x.keys, blocks_.window + 1, std::pow(static_cast<double>(head_size_), -0.25));
  if (blocks_.cache) {
    x.codebook = codebook;
    const VqBlocks blocks{settings.block, blocks_.window, true};
    const Shape by_block{2, rows, (tokens + blocks.block - 1) / blocks.block + 1};
    const Tensor caches =
        table("vq.caches", blocks.block, by_block, [&] { return blocks.caches(f.batch, f.state.segments(), initial); });
    settings.caches.tokens.codes = quantized.codes;
    settings.caches.tokens.window_codes = window_codes;
    settings.caches.mean = f.state.current(mean_);
    settings.caches.count = f.state.current(count_);
    settings.caches.tokens.origin = caches.select(0, 0);
    settings.caches.tokens.limit = caches.select(0, 1);
    settings.caches.reduction = config_.reduction;
  }
  if (gate_) x.gate = (*gate_)(tape, z);
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

  const Variable y = reshape(tape, mixed.out, {rows, tokens, heads_ * value_size_});
  return add_loss(f, commitment_, quantized.error, out_(tape, y, input.residual));
}

namespace {

constexpr CompositionRule kRules[] = {
    {"position",
     "vq reads tokens behind its window without a position, which rope cannot give; use xl, t5, alibi or none",
     [](const Place& p) { return p.layer.position.kind == Position::rope; }},
    {"dropout.attention", "vq has no dropout of probabilities: those of cached tokens stand for many; use 0",
     [](const Place& p) { return p.model.dropout.attention > 0; }},
};

// Through the cache a target sees all of the document; without it what the window of the target's block holds.
int64_t reach(const Place& place, const TargetPlace& target) {
  return options(place).compressive_cache ? target.position : std::min(target.position, window_of(place));
}

StepFlops flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const VqConfig& vq = options(place);
  const auto e = static_cast<double>(model.width);
  const double inner = static_cast<double>(model.heads * model.size_of_head());
  const double key_inner = static_cast<double>(model.heads_of_keys() * model.size_of_head());
  const auto value = static_cast<double>(value_size_of(place));
  const double values = static_cast<double>(model.heads) * value;
  const double matrices =
      e * (inner + key_inner + static_cast<double>(model.heads_of_keys()) * value + values * (vq.gate ? 2 : 1));
  const double codes = vq.compressive_cache ? static_cast<double>(vq.codes) : 0;
  const double seen = static_cast<double>(window_of(place)) +
                      (vq.compressive_cache ? static_cast<double>(std::min(vq.block, shape.subsequence) + 1) / 2 : 1) +
                      codes;
  const double products = (place.layer.position.kind == Position::xl ? 2 : 1) * inner + values;
  // The nearest codeword has no gradient, and finding it is a small part.
  return {.learned = static_cast<double>(shape.rows * shape.subsequence) * 2 * (matrices + seen * products)};
}

}  // namespace

Mechanism vq_mixer() {
  return {
      .role = Role::mixer,
      .kind = "vq",
      .help = "keys are codewords; what is behind the window is read through them (Transformer-VQ)",
      .options = [] { return ConfigBox(VqConfig{}); },
      .rules = kRules,
      .make_mixer = [](const Scope& scope, const Place& place, const Surroundings& around) -> std::unique_ptr<Part> {
        return std::make_unique<VqAttention>(scope, place, around);
      },
      .alignment = [](const Place& place) { return options(place).block; },
      .reach = reach,
      .flops = flops,
      .promises =
          [](const Place& place) {
            const VqConfig& vq = options(place);
            return Promises{.exact_gradient = !vq.straight_through && vq.cache_gradient, .split_invariant = true};
          }};
}

}  // namespace quire
