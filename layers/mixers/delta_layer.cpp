#include "layers/mixers/delta_layer.h"

#include <cmath>
#include <span>

#include "layers/pass/host_values.h"

namespace quire {

namespace {

double softplus_inverse(double x) {
  return x + std::log(-std::expm1(-x));
}

Linear out_projection(const Scope& scope, const ModelConfig& model, const DeltaShape& shape) {
  const int64_t inner = shape.heads * shape.value;
  return Linear(scope.child("out"), inner, model.width, Initialization(model).residual(inner));
}

}  // namespace

DeltaShape delta_shape(const ModelConfig& model, const DeltaConfig& config) {
  const int64_t heads = config.heads.value_or(model.heads), key = config.key_size.value_or(model.size_of_head());
  return {config.key_heads.value_or(heads), heads, key, config.value_size.value_or(key)};
}

DeltaLayer::DeltaLayer(const Scope& scope, const Place& place)
    : name_(scope.path()),
      config_(place.options.get<DeltaConfig>()),
      shape_(delta_shape(place.model, config_)),
      out_(out_projection(scope, place.model, shape_)) {
  const Initialization initial(place.model);
  const int64_t width = place.model.width, keys = shape_.key_heads * shape_.key, values = shape_.heads * shape_.value;
  const auto matrix = [&](const char* name, int64_t out, int64_t in) {
    return scope.child(name).matrix("weight", out, in, initial.matrix(in));
  };
  DeltaWeightsOf<Parameter>& p = parameters_;
  p.query = matrix("query", keys, width);
  p.key = matrix("key", keys, width);
  p.value = matrix("value", values, width);
  // Drawn as for the published models of Gated DeltaNet: smaller taps leave the output below norm_eps.
  const double tap = config_.conv == 0 ? 0 : 1 / std::sqrt(static_cast<double>(config_.conv));
  const auto convolution = [&](const char* name, int64_t channels, Parameter& taps, Parameter& bias,
                               RegisterId& inputs) {
    if (config_.conv == 0) return;
    const Scope own = scope.child(name);
    taps = own.param("weight", {channels, config_.conv}, Initializer::uniform(-tap, tap));
    if (config_.conv_bias) bias = own.param("bias", {channels}, Initializer::constant(0));
    if (config_.conv > 1) inputs = own.state_register("inputs", {config_.conv - 1, channels}, {.wide = true});
  };
  convolution("query_taps", keys, p.query_taps, p.query_bias, query_taps_);
  convolution("key_taps", keys, p.key_taps, p.key_bias, key_taps_);
  convolution("value_taps", values, p.value_taps, p.value_bias, value_taps_);

  const bool by_feature = config_.decays_by_feature(), apart = config_.gates == DeltaGates::gdn2;
  const int64_t rank = config_.rank.value_or(shape_.value), decays = by_feature ? shape_.key : 1;
  if (by_feature) p.decay_down = matrix("decay_down", rank, width);
  p.decay = matrix("decay", shape_.heads * decays, by_feature ? rank : width);
  if (config_.decay.kind != DeltaDecayKind::lower_free) {
    // Published rates begin between 0 or 1 and 16; with the bounded form at 1.
    const Initializer rates = config_.decay.kind == DeltaDecayKind::lower
                                  ? Initializer::constant(0)
                                  : Initializer::uniform(by_feature ? 1 : 0, 16, [](double x) { return std::log(x); });
    p.log_rate = scope.param_without_decay("log_rate", {shape_.heads}, rates);
  }
  p.decay_bias =
      scope.param_without_decay("decay_bias", {shape_.heads, decays},
                                Initializer::uniform(std::log(config_.decay.dt_min), std::log(config_.decay.dt_max),
                                                     [](double x) { return softplus_inverse(std::exp(x)); }));
  p.erase = matrix(apart ? "erase" : "rate", shape_.heads * (apart ? shape_.key : 1), width);
  if (apart) p.write = matrix("write", values, width);
  if (config_.output() != DeltaOutputGate::none) {
    if (by_feature) p.gate_down = matrix("gate_down", rank, width);
    p.gate = matrix("gate", values, by_feature ? rank : width);
    if (by_feature) p.gate_bias = scope.child("gate").param("bias", {values}, Initializer::constant(0));
  }
  p.norm = scope.child("norm").param("weight", {shape_.value}, Initializer::constant(1));
  state_ = scope.state_register("state", {shape_.heads, shape_.key, shape_.value}, {.wide = true});
}

DeltaWeights DeltaLayer::weights() const {
  const DeltaWeightsOf<Parameter>& p = parameters_;
  return {p.query,    p.key,        p.value,      p.query_taps, p.key_taps, p.value_taps, p.query_bias,
          p.key_bias, p.value_bias, p.decay_down, p.decay,      p.log_rate, p.decay_bias, p.erase,
          p.write,    p.gate_down,  p.gate,       p.gate_bias,  p.norm};
}

DeltaInput DeltaLayer::input_of(const Forward& f, const Variable& z) const {
  const std::vector<Segment> segments = f.state.segments();
  std::vector<int32_t> places;
  for (const Segment& segment : segments) {
    places.push_back(static_cast<int32_t>(f.batch.at(segment.row, segment.begin)));
    places.push_back(static_cast<int32_t>(segment.count));
  }
  const auto count = static_cast<int64_t>(segments.size()), kept = config_.conv - 1;
  DeltaInput in;
  in.z = z;
  in.state = Variable::constant(f.state.initial(state_));
  in.segments = f.table("delta.segments", {}, [&] { return Tensor::from(places, {count, 2}, f.state.device()); });
  if (config_.conv == 0) return in;
  const auto tap_rows = [&](const char* name, Tensor DeltaTapRows::*which) {
    return f.table(name, {kept}, [&] { return delta_tap_rows(places, config_.conv, f.state.device()).*which; });
  };
  const auto taps = [&](RegisterId inputs, int64_t channels) {
    if (kept > 0) return f.state.initial(inputs);
    return Tensor::zeros({count, 0, channels}, wide_type(z.value().dtype()), f.state.device());
  };
  in.taps = {taps(query_taps_, shape_.key_heads * shape_.key), taps(key_taps_, shape_.key_heads * shape_.key),
             taps(value_taps_, shape_.heads * shape_.value)};
  if (kept > 0)
    in.tap_rows = {tap_rows("delta.recent", &DeltaTapRows::recent), tap_rows("delta.earlier", &DeltaTapRows::earlier)};
  return in;
}

Variable DeltaLayer::operator()(const Forward& f, const PartInput& input) const {
  Tape& tape = f.tape;
  const Variable z = input.normalised(tape);
  const int64_t rows = z.dim(0), length = z.dim(1);
  const DeltaInput in = input_of(f, reshape(tape, z, {rows * length, z.dim(2)}));
  const DeltaMix mix = delta_mix(tape, config_, shape_, weights(), in);
  if (f.write_state) {
    f.state.put_by_segment(state_, mix.state.value());
    for (const auto& [inputs, taps] : {std::pair{query_taps_, mix.taps.query}, std::pair{key_taps_, mix.taps.key},
                                       std::pair{value_taps_, mix.taps.value}}) {
      if (inputs.defined()) f.state.put_by_segment(inputs, taps);
    }
  }
  if (f.wants_telemetry()) report(f, mix);
  return out_(tape, reshape(tape, mix.out, {rows, length, shape_.heads * shape_.value}), input.residual);
}

// keep.H: what a token of this pass keeps of the state of a head, its features' mean. slow: the share of features that
// keep half for 100 tokens or more. rate: the mean erase rate. norm: the length of the state, a mean over rows and
// heads.
void DeltaLayer::report(const Forward& f, const DeltaMix& mix) const {
  const std::vector<double> decay = values_on_host(mix.decay.value()), rate = values_on_host(mix.erase.value());
  const int64_t features = mix.decay.dim(2), rates = mix.erase.dim(2), columns = shape_.heads * features;
  std::vector<double> keep(static_cast<size_t>(shape_.heads), 0), mean(static_cast<size_t>(columns), 0);
  double rate_sum = 0, tokens = 0;
  for (const Segment& segment : f.state.segments()) {
    tokens += static_cast<double>(segment.count);
    const int64_t first = f.batch.at(segment.row, segment.begin);
    for (int64_t cell = first; cell < first + segment.count; ++cell) {
      for (int64_t c = 0; c < columns; ++c) {
        const double g = decay[static_cast<size_t>(cell * columns + c)];
        keep[static_cast<size_t>(c / features)] += std::exp(g);
        mean[static_cast<size_t>(c)] += g;
      }
      for (int64_t c = 0; c < shape_.heads * rates; ++c) {
        rate_sum += rate[static_cast<size_t>(cell * shape_.heads * rates + c)];
      }
    }
  }
  const double count = std::max(tokens, 1.0);
  double slow = 0;
  for (const double g : mean) slow += -g / count <= std::log(2.0) / 100 ? 1 : 0;
  for (size_t h = 0; h < keep.size(); ++h) {
    f.add_telemetry(name_ + ".keep." + std::to_string(h), keep[h] / count / static_cast<double>(features));
  }
  f.add_telemetry(name_ + ".slow", slow / static_cast<double>(columns));
  f.add_telemetry(name_ + ".rate", rate_sum / count / static_cast<double>(shape_.heads * rates));
  const std::vector<double> state = values_on_host(mix.state.value());
  double norm = 0;
  size_t last = 0, segment = 0;
  const auto size = static_cast<size_t>(shape_.key * shape_.value), heads = static_cast<size_t>(shape_.heads);
  for (const Segment& s : f.state.segments()) {
    for (size_t h = 0; s.last && h < heads; ++h) {
      double square = 0;
      for (size_t i = 0; i < size; ++i) {
        const double x = state[(segment * heads + h) * size + i];
        square += x * x;
      }
      norm += std::sqrt(square);
      ++last;
    }
    ++segment;
  }
  f.add_telemetry(name_ + ".norm", last == 0 ? 0 : norm / static_cast<double>(last));
}

}  // namespace quire
