#include "layers/mixers/softmax_projections.h"

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"

namespace quire {

namespace {

constexpr double kQkNormEps = 1e-6;  // Memorizing Transformer code

}  // namespace

SoftmaxProjections::SoftmaxProjections(const Scope& scope, const Place& place, const SoftmaxConfig& config)
    : qk_norm_(config.qk_norm),
      rms_qk_norm_(config.rms_qk_norm),
      eps_(place.model.norm.eps),
      heads_(place.model.heads),
      key_heads_(place.model.heads_of_keys()),
      head_size_(place.model.size_of_head()),
      query_(scope.child("query"), place.model.width, heads_ * head_size_,
             Initialization(place.model).matrix(place.model.width), config.bias != ProjectionBias::none),
      key_(scope.child("key"), place.model.width, key_heads_ * head_size_,
           Initialization(place.model).matrix(place.model.width), config.bias != ProjectionBias::none),
      value_(scope.child("value"), place.model.width, key_heads_ * head_size_,
             Initialization(place.model).matrix(place.model.width), config.bias != ProjectionBias::none),
      out_(scope.child("out"), heads_ * head_size_, place.model.width,
           Initialization(place.model).residual(heads_ * head_size_), config.bias == ProjectionBias::all) {
  if (rms_qk_norm_ == RmsQkNorm::none) return;
  const auto gain = [&](const char* name, int64_t heads) {
    const int64_t size = rms_qk_norm_ == RmsQkNorm::head ? head_size_ : heads * head_size_;
    return scope.child(name).param("weight", {size}, Initialization(place.model).gain());
  };
  query_gain_ = gain("query_norm", heads_);
  key_gain_ = gain("key_norm", key_heads_);
}

Variable SoftmaxProjections::normalised(Tape& tape, const Variable& x, int64_t heads, const Parameter& gain) const {
  const bool together = rms_qk_norm_ == RmsQkNorm::all;
  const Variable y = together ? rms_norm(tape, x, gain, eps_) : x;
  const Variable by_head = reshape(tape, y, {x.dim(0), x.dim(1), heads, head_size_});
  if (qk_norm_) return l2_normalize(tape, by_head, kQkNormEps);
  return rms_qk_norm_ == RmsQkNorm::head ? rms_norm(tape, by_head, gain, eps_) : by_head;
}

Variable SoftmaxProjections::queries(Tape& tape, const Variable& z) const {
  return normalised(tape, query_(tape, z), heads_, query_gain_);
}

std::pair<Variable, Variable> SoftmaxProjections::keys_and_values(Tape& tape, const Variable& z) const {
  const Variable k = normalised(tape, key_(tape, z), key_heads_, key_gain_);
  return {k, reshape(tape, value_(tape, z), {z.dim(0), z.dim(1), key_heads_, head_size_})};
}

Variable SoftmaxProjections::out(Tape& tape, const Variable& mixed, const Variable& residual) const {
  return out_(tape, reshape(tape, mixed, {mixed.dim(0), mixed.dim(1), heads_ * head_size_}), residual);
}

}  // namespace quire
