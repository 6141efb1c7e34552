#include "layers/mixers/block_recurrent_tokens.h"

#include <algorithm>

#include "autograd/functions/norm.h"
#include "layers/mixers/block_recurrent_states.h"

namespace quire {

RecurrentTokens::RecurrentTokens(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables,
                                 int64_t carried)
    : config_(place.options.get<BlockRecurrentConfig>()),
      shape_(HeadShape::of(place.model)),
      tail_(scope, place, std::move(tables), carried),
      query_(scope.child("query"), place.model.width, shape_.heads * shape_.size,
             Initialization(place.model).matrix(place.model.width)),
      key_(scope.child("key"), place.model.width, shape_.heads * shape_.size,
           Initialization(place.model).matrix(place.model.width)),
      value_(scope.child("value"), place.model.width, shape_.heads * shape_.size,
             Initialization(place.model).matrix(place.model.width)),
      state_query_(scope.child("state_query"), place.model.width, shape_.heads * shape_.size,
                   Initialization(place.model).matrix(place.model.width)),
      out_(scope.child("out"), 2 * shape_.heads * shape_.size, place.model.width,
           Initialization(place.model).residual(2 * shape_.heads * shape_.size)) {
  if (!config_.qk_norm) return;
  self_scale_ = scope.param_without_decay("self_scale", {shape_.heads}, Initializer::constant(1));
  state_scale_ = scope.param_without_decay("state_scale", {shape_.heads}, Initializer::constant(1));
}

Variable RecurrentTokens::unit_heads(Tape& tape, const Linear& projection, const Variable& z) const {
  const Variable y = reshape(tape, projection(tape, z), {z.dim(0), z.dim(1), shape_.heads, shape_.size});
  return config_.qk_norm ? l2_normalize(tape, y, kRecurrentKeyEps) : y;
}

RecurrentTokens::Heads RecurrentTokens::heads(Tape& tape, const Variable& z) const {
  Heads heads;
  heads.q = unit_heads(tape, query_, z);
  heads.k = unit_heads(tape, key_, z);
  heads.v = reshape(tape, value_(tape, z), {z.dim(0), z.dim(1), shape_.heads, shape_.size});
  heads.q_states = unit_heads(tape, state_query_, z);
  if (config_.qk_norm) heads.q_states = scale_heads(tape, heads.q_states, state_scale_);
  return heads;
}

CarriedTokens RecurrentTokens::carried(const Forward& f, int64_t slots) const {
  const int64_t window = config_.window, earlier = config_.previous_window ? window : 0;
  const auto needed = [&](int64_t position) { return std::max(window, position % window + earlier); };
  return tail_.carried(f, needed, config_.mask_empty ? slots : std::max(slots, window));
}

Variable RecurrentTokens::attend(const Forward& f, const CarriedTokens& carried, const Heads& heads,
                                 const Tensor& visible) const {
  const int64_t window = config_.window;
  return tail_.attend(f, carried, heads.q, heads.k, heads.v,
                      {.name = "block_recurrent.first_visible",
                       .numbers = {window},
                       .back = [window](int64_t) { return window; },
                       .reach = window + 1,
                       .attend_self = config_.attend_self,
                       .mask_empty = config_.mask_empty,
                       .visible = visible,
                       .scale = self_scale_});
}

Variable RecurrentTokens::out(Tape& tape, const Variable& own, const Variable& read, const Variable& residual) const {
  const auto lines = [&](const Variable& x) {
    return reshape(tape, x, {x.dim(0), x.dim(1), shape_.heads * shape_.size});
  };
  return out_(tape, concatenate(tape, std::vector{lines(own), lines(read)}, 2), residual);
}

}  // namespace quire
