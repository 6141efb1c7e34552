#include "layers/mixers/block_recurrent_states.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/attention.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/grouped_cross_attention.h"
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
                                 Device device) {
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
    at.keys[row] = static_cast<int32_t>(piece.keys);
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

RecurrentResult recurrent_states(Tape& tape, const BlockRecurrentConfig& config, const RecurrentShape& shape,
                                 const RecurrentWeights& w, const Variable& token_queries, const Variable& keys,
                                 const Variable& values, Variable states, const RecurrentTables& tables) {
  const int64_t rows = states.dim(0), count = states.dim(1), width = states.dim(2), heads = shape.heads;
  const int64_t size = keys.dim(3), inner = heads * size;
  const DType type = keys.value().dtype(), wide = states.value().dtype();
  const Device device = keys.value().device();
  const double scale = config.qk_norm ? 1 : 1 / std::sqrt(static_cast<double>(size));
  const auto of_heads = [&](const Variable& x, const Variable& weight, const Variable& factor) {
    const Variable y = heads_of(tape, x, weight, heads);
    if (!config.qk_norm) return y;
    const Variable unit = l2_normalize(tape, y, kRecurrentKeyEps);
    return factor.defined() ? scale_heads(tape, unit, factor) : unit;
  };
  const auto lines = [&](const Variable& x) { return reshape(tape, x, {rows, x.dim(1), inner}); };
  const Variable key_lines = lines(keys), value_lines = lines(values);
  const Variable position = reshape(tape, w.position, {1, count, width});
  const Variable initial = broadcast(tape, reshape(tape, w.initial, {1, count, width}), {rows, count, width});
  RecurrentResult result;
  std::vector<Variable> state_keys, state_values;
  for (const RecurrentTables::Step& step : tables.steps) {
    if (step.cut.defined()) states = select(tape, step.cut, states.detached(), states);
    if (step.begins.defined()) states = select(tape, step.begins, initial, states);
    const Variable rn = convert(tape, add(tape, rms_norm(tape, states, w.norm, shape.norm_eps), position), type);
    state_keys.push_back(of_heads(rn, w.key, {}));
    state_values.push_back(heads_of(tape, rn, w.value, heads));
    if (step.updates.defined()) {
      const auto window = [&](const Variable& x) {
        return reshape(tape, gather_rows(tape, x, step.key), {rows, step.key.dim(1), heads, size});
      };
      // States see all states, and then none of them but the keys of tokens, which lie in the ring.
      AttentionVariables x;
      x.q = of_heads(rn, w.query, w.self_scale), x.k = state_keys.back(), x.v = state_values.back();
      ops::AttentionInputs sight;
      sight.scale = scale;
      sight.first_visible = by_state(std::vector<int32_t>(static_cast<size_t>(rows), 0), count, device);
      sight.last_visible =
          by_state(std::vector<int32_t>(static_cast<size_t>(rows), static_cast<int32_t>(count - 1)), count, device);
      const Variable self = attention(tape, x, sight);
      x.q = of_heads(rn, w.token_query, w.token_scale);
      x.cache_k = window(key_lines), x.cache_v = window(value_lines);
      std::vector<int32_t> first;
      for (const int32_t n : step.keys) first.push_back(-n);
      sight.cache_head = Tensor::zeros({rows}, DType::i32, device);
      sight.first_visible = by_state(first, count, device);
      sight.last_visible = by_state(std::vector<int32_t>(static_cast<size_t>(rows), -1), count, device);
      const Variable cross = attention(tape, x, sight);
      const Variable a = concatenate(tape, std::vector{lines(self), lines(cross)}, 2);
      Variable next = states;
      if (config.update != RecurrentUpdate::single) {
        const Variable z = convert(tape, linear(tape, a, w.out), wide);
        next = recurrent_gate(tape, config.gate, w.attention_gate, next, z, a);
      }
      if (config.update != RecurrentUpdate::skip) {
        const bool dual = config.update == RecurrentUpdate::dual;
        const Variable read = dual ? convert(tape, rms_norm(tape, next, w.mlp_norm, shape.norm_eps), type) : a;
        const Variable u = linear_activation(tape, read, w.up, {}, ops::Activation::relu);
        const Variable z = convert(tape, linear(tape, u, w.down), wide);
        next = recurrent_gate(tape, config.gate, w.mlp_gate, next, dual ? z : tanh(tape, z), u);
      }
      states = select(tape, step.updates, next, states);
    }
    result.after.push_back(states);
  }
  const auto steps = static_cast<int64_t>(tables.steps.size());
  if (steps == 0) {
    result.read = Variable::constant(Tensor::zeros(token_queries.shape(), type, token_queries.value().device()));
    return result;
  }
  // Chunk step * rows + row: the states that the tokens of a piece read.
  std::vector<int32_t> chosen;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t step = 0; step < steps; ++step) chosen.push_back(static_cast<int32_t>(step * rows + row));
  }
  ops::GroupedCrossAttentionInputs settings;
  settings.chosen = Tensor::from(chosen, {rows, steps, 1}, device);
  settings.list = tables.step_of;
  settings.scale = scale;
  const Variable weight = constant(1, {rows, steps, 1}, token_queries);
  result.read = grouped_cross_attention(tape, token_queries, concatenate(tape, state_keys, 0),
                                        concatenate(tape, state_values, 0), weight, settings);
  return result;
}

}  // namespace quire
