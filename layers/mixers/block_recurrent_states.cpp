#include "layers/mixers/block_recurrent_states.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/attention.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/listed_attention.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/rows.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

Variable constant(double value, const Shape& shape, const Variable& like) {
  const std::vector<double> values(static_cast<size_t>(shape.numel()), value);
  return Variable::constant(tensor_of(values, shape, wide_type(like.value().dtype()), like.value().device()));
}

// i32 [R, N]: the same number for all states of a row.
Tensor by_state(const std::vector<int32_t>& by_row, int64_t states, Device device) {
  std::vector<int32_t> all;
  for (const int32_t number : by_row) all.insert(all.end(), static_cast<size_t>(states), number);
  return Tensor::from(all, {static_cast<int64_t>(by_row.size()), states}, device);
}

Variable heads_of(Tape& tape, const Variable& x, const Variable& weight, int64_t heads) {
  const Variable y = linear(tape, x, weight);
  return reshape(tape, y, {x.dim(0), x.dim(1), heads, y.dim(2) / heads});
}

double scale_of(const BlockRecurrentConfig& config, const Variable& keys) {
  return config.qk_norm ? 1 : 1 / std::sqrt(static_cast<double>(keys.dim(3)));
}

}  // namespace

Variable recurrent_gate(Tape& tape, RecurrentGate kind, const RecurrentGateOf<Variable>& gate, const Variable& c,
                        const Variable& z, const Variable& h) {
  if (kind == RecurrentGate::residual) return add(tape, c, z);
  const int64_t width = c.dim(2);
  const Variable biases = reshape(tape, gate.bias, {gate.bias.value().numel() / width, 1, width});
  // The share of part n, whose bias is moved by `more`.
  const auto share = [&](int64_t n, double more) {
    Variable bias = slice(tape, biases, 0, n, n + 1);
    if (more != 0) bias = add(tape, bias, constant(more, {1, 1, 1}, bias));
    if (!gate.weight.defined()) return sigmoid(tape, bias);
    const Variable asked = linear(tape, h, slice(tape, gate.weight, 0, n * width, (n + 1) * width));
    return sigmoid(tape, add(tape, convert(tape, asked, c.value().dtype()), bias));
  };
  if (kind == RecurrentGate::lstm) {
    return add(tape, multiply(tape, share(0, 1), c), multiply(tape, share(1, -1), z));
  }
  // g c + (1 - g) z
  const Variable g = share(0, kind == RecurrentGate::full ? 1 : 0);
  return add(tape, z, multiply(tape, g, subtract(tape, c, z)));
}

RecurrentTables recurrent_tables(const std::vector<RecurrentPiece>& pieces, int64_t rows, int64_t tokens, int64_t keys,
                                 bool mask_empty, Device device) {
  struct Lists {
    std::vector<uint8_t> begins, cut, updates;
    std::vector<int32_t> key, keys;
  };
  std::vector<Lists> lists;
  std::vector<size_t> next(static_cast<size_t>(rows), 0);
  std::vector<int32_t> step_of(static_cast<size_t>(rows * tokens), -1);
  for (const RecurrentPiece& piece : pieces) {
    const auto row = static_cast<size_t>(piece.row);
    const size_t step = next[row]++;
    if (step == lists.size()) {
      const auto count = static_cast<size_t>(rows);
      lists.push_back({std::vector<uint8_t>(count), std::vector<uint8_t>(count), std::vector<uint8_t>(count),
                       std::vector<int32_t>(count * static_cast<size_t>(keys), -1), std::vector<int32_t>(count, 0)});
    }
    Lists& at = lists[step];
    at.begins[row] = piece.begins ? 1 : 0;
    at.cut[row] = piece.cut ? 1 : 0;
    std::fill_n(step_of.begin() + piece.row * tokens + piece.first_query, piece.queries, static_cast<int32_t>(step));
    if (piece.keys == 0) continue;
    at.updates[row] = 1;
    at.keys[row] = static_cast<int32_t>(mask_empty ? piece.keys : keys);
    // The newest are the last.
    for (int64_t n = 0; n < piece.keys; ++n) {
      at.key[static_cast<size_t>((piece.row + 1) * keys - piece.keys + n)] = static_cast<int32_t>(piece.first_key + n);
    }
  }
  RecurrentTables tables;
  tables.step_of = Tensor::from(step_of, {rows, tokens}, device);
  const auto any = [&](const std::vector<uint8_t>& flags) {
    if (std::ranges::find(flags, 1) == flags.end()) return Tensor();
    return Tensor::from(flags, {rows, 1, 1}, device);
  };
  for (const Lists& at : lists) {
    RecurrentTables::Step step{
        .begins = any(at.begins), .cut = any(at.cut), .updates = any(at.updates), .key = {}, .keys = {}};
    if (step.updates.defined()) {
      step.key = Tensor::from(at.key, {rows, keys}, device);
      step.keys = at.keys;
    }
    tables.steps.push_back(std::move(step));
  }
  return tables;
}

RecurrentRule::RecurrentRule(Tape& tape, const BlockRecurrentConfig& config, const RecurrentShape& shape,
                             const RecurrentWeights& weights, DType type)
    : tape_(tape), config_(config), shape_(shape), w_(weights), type_(type) {}

Variable RecurrentRule::unit_heads(const Variable& x, const Variable& weight, const Variable& factor) const {
  const Variable y = heads_of(tape_, x, weight, shape_.heads);
  if (!config_.qk_norm) return y;
  const Variable unit = l2_normalize(tape_, y, kRecurrentKeyEps);
  return factor.defined() ? scale_heads(tape_, unit, factor) : unit;
}

RecurrentSight RecurrentRule::before(Variable states, const RecurrentTables::Step& step) const {
  const Shape one{1, config_.states, states.dim(2)};
  if (step.cut.defined()) states = select(tape_, step.cut, states.detached(), states);
  if (step.begins.defined()) {
    const Variable initial = broadcast(tape_, reshape(tape_, w_.initial, one), states.shape());
    states = select(tape_, step.begins, initial, states);
  }
  const Variable position = reshape(tape_, w_.position, one);
  const Variable normed =
      convert(tape_, add(tape_, rms_norm(tape_, states, w_.norm, shape_.norm_eps), position), type_);
  return {states, normed, unit_heads(normed, w_.key, {}), heads_of(tape_, normed, w_.value, shape_.heads)};
}

// Returns [R, N, 2 H D]: what the states read of all states, and of the tokens of the last windows.
Variable RecurrentRule::read(const RecurrentSight& sight, const RecurrentTables::Step& step, const Variable& keys,
                             const Variable& values) const {
  const int64_t rows = keys.dim(0), count = config_.states, heads = shape_.heads, size = keys.dim(3);
  const Device device = keys.value().device();
  const auto lines = [&](const Variable& x) { return reshape(tape_, x, {rows, x.dim(1), heads * size}); };
  const auto window = [&](const Variable& x) {
    return reshape(tape_, gather_rows(tape_, lines(x), step.key), {rows, step.key.dim(1), heads, size});
  };
  // States see all states, and then none of them but the keys of tokens, which lie in the ring.
  AttentionVariables x;
  x.q = unit_heads(sight.normed, w_.query, w_.self_scale), x.k = sight.keys, x.v = sight.values;
  ops::AttentionInputs visible;
  visible.scale = scale_of(config_, keys);
  visible.first_visible = by_state(std::vector<int32_t>(static_cast<size_t>(rows), 0), count, device);
  visible.last_visible =
      by_state(std::vector<int32_t>(static_cast<size_t>(rows), static_cast<int32_t>(count - 1)), count, device);
  const Variable self = attention(tape_, x, visible);
  x.q = unit_heads(sight.normed, w_.token_query, w_.token_scale);
  x.cache_k = window(keys), x.cache_v = window(values);
  std::vector<int32_t> first;
  for (const int32_t n : step.keys) first.push_back(-n);
  visible.cache_head = Tensor::zeros({rows}, DType::i32, device);
  visible.first_visible = by_state(first, count, device);
  visible.last_visible = by_state(std::vector<int32_t>(static_cast<size_t>(rows), -1), count, device);
  const Variable cross = attention(tape_, x, visible);
  return concatenate(tape_, std::vector{lines(self), lines(cross)}, 2);
}

Variable RecurrentRule::after(const RecurrentSight& sight, const RecurrentTables::Step& step, const Variable& keys,
                              const Variable& values) const {
  if (!step.updates.defined()) return sight.states;
  const Variable a = read(sight, step, keys, values);
  const DType wide = sight.states.value().dtype();
  Variable next = sight.states;
  if (config_.update != RecurrentUpdate::single) {
    const Variable z = convert(tape_, linear(tape_, a, w_.out), wide);
    next = recurrent_gate(tape_, config_.gate, w_.attention_gate, next, z, a);
  }
  if (config_.update != RecurrentUpdate::skip) {
    const bool dual = config_.update == RecurrentUpdate::dual;
    const Variable in = dual ? convert(tape_, rms_norm(tape_, next, w_.mlp_norm, shape_.norm_eps), type_) : a;
    const Variable u = linear_activation(tape_, in, w_.up, {}, ops::Activation::relu);
    const Variable z = convert(tape_, linear(tape_, u, w_.down), wide);
    next = recurrent_gate(tape_, config_.gate, w_.mlp_gate, next, dual ? z : tanh(tape_, z), u);
  }
  return select(tape_, step.updates, next, sight.states);
}

Variable read_states(Tape& tape, const BlockRecurrentConfig& config, const Variable& queries,
                     const std::vector<RecurrentSight>& sights, const Tensor& step_of) {
  const int64_t rows = queries.dim(0), steps = static_cast<int64_t>(sights.size());
  const Device device = queries.value().device();
  if (steps == 0) return Variable::constant(Tensor::zeros(queries.shape(), queries.value().dtype(), device));
  std::vector<Variable> keys, values;
  for (const RecurrentSight& sight : sights) {
    keys.push_back(sight.keys);
    values.push_back(sight.values);
  }
  // Chunk step * rows + row: the states that the tokens of a piece read.
  std::vector<int32_t> chosen;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t step = 0; step < steps; ++step) chosen.push_back(static_cast<int32_t>(step * rows + row));
  }
  ops::ListedAttentionInputs settings;
  settings.blocks = Tensor::from(chosen, {rows, steps, 1, 1}, device);
  settings.list = step_of;
  settings.scale = scale_of(config, keys[0]);
  const Variable weight = constant(1, {rows, steps, 1}, queries);
  return listed_attention(tape, queries, concatenate(tape, keys, 0), concatenate(tape, values, 0), weight, settings);
}

RecurrentResult recurrent_states(Tape& tape, const BlockRecurrentConfig& config, const RecurrentShape& shape,
                                 const RecurrentWeights& w, const Variable& token_queries, const Variable& keys,
                                 const Variable& values, Variable states, const RecurrentTables& tables) {
  const RecurrentRule rule(tape, config, shape, w, keys.value().dtype());
  RecurrentResult result;
  std::vector<RecurrentSight> sights;
  for (const RecurrentTables::Step& step : tables.steps) {
    sights.push_back(rule.before(states, step));
    states = rule.after(sights.back(), step, keys, values);
    result.after.push_back(states);
  }
  result.read = read_states(tape, config, token_queries, sights, tables.step_of);
  return result;
}

}  // namespace quire
