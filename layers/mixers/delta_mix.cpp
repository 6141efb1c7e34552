#include "layers/mixers/delta_mix.h"

#include <cmath>

#include "autograd/functions/convolution.h"
#include "autograd/functions/delta.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/rows.h"

namespace quire {

namespace {

constexpr double kKeyEps = 1e-6;

struct Convolved {
  Variable y;   // [N, channels]
  Tensor taps;  // wide [S, W - 1, channels]
};
Convolved convolve(Tape& tape, const DeltaConfig& config, const Variable& x, const Variable& weight,
                   const Variable& bias, const Tensor& before, const DeltaInput& in) {
  if (config.conv == 0) return {activation(tape, x, ops::Activation::silu), {}};
  Convolved result;
  result.y = short_convolution(tape, {x, weight, bias, before}, in.segments);
  if (config.conv > 1) result.taps = delta_taps(x.value(), before, in.tap_rows);
  return result;
}

Variable gated(Tape& tape, DeltaOutputGate kind, const Variable& x, const Variable& gate) {
  if (kind == DeltaOutputGate::none) return x;
  return kind == DeltaOutputGate::silu ? swiglu(tape, gate, x) : multiply(tape, x, sigmoid(tape, gate));
}

}  // namespace

DeltaTapRows delta_tap_rows(const std::vector<int32_t>& segments, int64_t taps, Device device) {
  std::vector<int32_t> recent, earlier;
  const auto kept = static_cast<int32_t>(taps - 1);
  for (size_t s = 0; s < segments.size() / 2; ++s) {
    const int32_t count = segments[2 * s + 1], end = segments[2 * s] + count;
    for (int32_t back = kept; back > 0; --back) {  // 1 is the last token
      recent.push_back(back <= count ? end - back : -1);
      earlier.push_back(back <= count ? -1 : static_cast<int32_t>(s + 1) * kept - (back - count));
    }
  }
  const Shape shape{static_cast<int64_t>(segments.size() / 2), kept};
  return {Tensor::from(recent, shape, device), Tensor::from(earlier, shape, device)};
}

Tensor delta_taps(const Tensor& x, const Tensor& before, const DeltaTapRows& rows) {
  Tape idle(false);
  const Variable carried = Variable::constant(before.reshape({before.dim(0) * before.dim(1), before.dim(2)}));
  const Variable own = gather_rows(idle, Variable::constant(x), rows.recent);
  return add(idle, convert(idle, own, before.dtype()), gather_rows(idle, carried, rows.earlier)).value();
}

DeltaMix delta_mix(Tape& tape, const DeltaConfig& config, const DeltaShape& shape, const DeltaWeights& weights,
                   const DeltaInput& in) {
  const int64_t key_heads = shape.key_heads, heads = shape.heads, key_size = shape.key, value_size = shape.value;
  const Variable& z = in.z;
  const int64_t cells = z.dim(0);
  const DType type = z.value().dtype(), wide = wide_type(type);
  const auto project = [&](const Variable& weight, int64_t of, int64_t size) {
    return reshape(tape, linear(tape, z, weight), {cells, of, size});
  };
  const auto rate = [&](const Variable& weight, int64_t size) {
    return sigmoid(tape, convert(tape, project(weight, heads, size), wide));
  };
  DeltaMix mix;
  const Convolved q =
      convolve(tape, config, linear(tape, z, weights.query), weights.query_taps, weights.query_bias, in.taps.query, in);
  const Convolved k =
      convolve(tape, config, linear(tape, z, weights.key), weights.key_taps, weights.key_bias, in.taps.key, in);
  const Convolved v =
      convolve(tape, config, linear(tape, z, weights.value), weights.value_taps, weights.value_bias, in.taps.value, in);
  mix.taps = {q.taps, k.taps, v.taps};
  const auto keys = [&](const Variable& x) {
    const Variable by_head = reshape(tape, x, {cells, key_heads, key_size});
    return config.qk_norm ? l2_normalize(tape, by_head, kKeyEps) : by_head;
  };

  const bool by_feature = config.decays_by_feature();
  const Variable asked =
      by_feature ? linear(tape, linear(tape, z, weights.decay_down), weights.decay) : linear(tape, z, weights.decay);
  const double bound = config.decay.kind == DeltaDecayKind::softplus ? 0 : config.decay.bound;
  mix.decay = delta_decay(tape,
                          {.a = reshape(tape, asked, {cells, heads, by_feature ? key_size : 1}),
                           .log_rate = weights.log_rate,
                           .bias = weights.decay_bias},
                          bound);
  const bool apart = config.gates == DeltaGates::gdn2;
  const Variable strength = rate(weights.erase, apart ? key_size : 1);
  mix.erase = config.negative ? scale(tape, strength, 2) : strength;
  mix.write = apart ? rate(weights.write, value_size) : mix.erase;
  const DeltaResult result = delta_rule(tape,
                                        {.q = keys(q.y),
                                         .k = keys(k.y),
                                         .v = reshape(tape, v.y, {cells, heads, value_size}),
                                         .g = mix.decay,
                                         .erase = config.erases() ? mix.erase : Variable(),
                                         .write = mix.write,
                                         .state = in.state},
                                        in.segments, 1 / std::sqrt(static_cast<double>(key_size)));
  mix.recalled = result.out;
  mix.state = result.last;
  const Variable normalised = rms_norm(tape, result.out, weights.norm, config.norm_eps);
  const DeltaOutputGate kind = config.output();
  Variable gate;
  if (kind != DeltaOutputGate::none) {
    const Variable inner = by_feature ? linear(tape, z, weights.gate_down) : z;
    gate = reshape(tape, linear(tape, inner, weights.gate, weights.gate_bias), {cells, heads, value_size});
  }
  mix.out = reshape(tape, gated(tape, kind, normalised, gate), {cells, heads * value_size});
  return mix;
}

}  // namespace quire
