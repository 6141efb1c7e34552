#include "layers/mixers/block_recurrent_vectors.h"

#include <algorithm>
#include <cmath>

#include "layers/pass/host_values.h"

namespace quire {

namespace {

// Published deviations: the positions of the states tell them apart and are large.
constexpr double kPositionStd = 1, kInitialStd = 0.1, kGateStd = 0.1;

}  // namespace

int64_t RecurrentVectors::carried_tokens(const BlockRecurrentConfig& config) {
  return config.previous_window ? 2 * config.window - 1 : config.window;
}

RecurrentGateOf<Parameter> RecurrentVectors::gate(const Scope& scope, int64_t width, int64_t in) const {
  RecurrentGateOf<Parameter> made;
  if (config_.gate == RecurrentGate::residual) return made;
  const bool lstm = config_.gate == RecurrentGate::lstm;
  made.bias = scope.param_without_decay("bias", lstm ? Shape{2, width} : Shape{width},
                                        Initializer{.mean = config_.gate_init, .std = kGateStd});
  if (config_.gate == RecurrentGate::fixed) return made;
  made.weight = scope.matrix("weight", (lstm ? 2 : 1) * width, in,
                             Initializer::normal(std::sqrt(kGateStd / static_cast<double>(in))), lstm ? 2 : 1);
  return made;
}

RecurrentVectors::RecurrentVectors(const Scope& scope, const Place& place)
    : name_(scope.path()),
      config_(place.options.get<BlockRecurrentConfig>()),
      shape_{place.model.heads, place.model.norm.eps} {
  const Initialization initial(place.model);
  const int64_t width = place.model.width, inner = place.model.heads * place.model.size_of_head();
  const int64_t hidden = place.model.mlp.hidden;
  const Scope own = scope.child("states");
  const auto matrix = [&](const char* name, int64_t out, int64_t in) {
    return own.child(name).matrix("weight", out, in, initial.matrix(in));
  };
  const auto scale = [&](const char* name) {
    return config_.qk_norm ? own.param_without_decay(name, {shape_.heads}, Initializer::constant(1)) : Parameter();
  };
  RecurrentWeightsOf<Parameter>& w = states_;
  w.norm = own.child("norm").param("weight", {width}, Initializer::constant(1));
  w.position = own.param_without_decay("position", {config_.states, width}, Initializer::normal(kPositionStd));
  w.initial = own.param_without_decay("initial", {config_.states, width}, Initializer::normal(kInitialStd));
  w.query = matrix("query", inner, width);
  w.key = matrix("key", inner, width);
  w.value = matrix("value", inner, width);
  w.token_query = matrix("token_query", inner, width);
  w.self_scale = scale("self_scale");
  w.token_scale = scale("token_scale");
  if (config_.update != RecurrentUpdate::single) {
    w.out = matrix("out", width, 2 * inner);
    w.attention_gate = gate(own.child("attention_gate"), width, 2 * inner);
  }
  if (config_.update != RecurrentUpdate::skip) {
    const bool dual = config_.update == RecurrentUpdate::dual;
    if (dual) w.mlp_norm = own.child("mlp_norm").param("weight", {width}, Initializer::constant(1));
    w.up = matrix("up", hidden, dual ? width : 2 * inner);
    w.down = matrix("down", width, hidden);
    w.mlp_gate = gate(own.child("mlp_gate"), width, hidden);
  }
  state_ = scope.state_register("state", {config_.states, width}, {.wide = true});
}

RecurrentWeights RecurrentVectors::weights() const {
  const RecurrentWeightsOf<Parameter>& w = states_;
  return {w.norm,
          w.position,
          w.initial,
          w.query,
          w.key,
          w.value,
          w.token_query,
          w.self_scale,
          w.token_scale,
          w.out,
          w.mlp_norm,
          w.up,
          w.down,
          {w.attention_gate.bias, w.attention_gate.weight},
          {w.mlp_gate.bias, w.mlp_gate.weight}};
}

std::vector<RecurrentPiece> RecurrentVectors::pieces(const Forward& f, const CarriedTokens& carried) const {
  const std::vector<Segment> segments = f.state.segments();
  const std::vector<uint8_t> is_empty = f.state.is_empty(state_);
  const int64_t window = config_.window, read = config_.previous_window ? 2 * window : window;
  std::vector<RecurrentPiece> pieces;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    bool begins = !segment.carried || is_empty[s] != 0;
    const int64_t begin = carried.position[s], end = begin + segment.count;
    for (int64_t at = begin / window; at * window < end; ++at) {
      const int64_t from = std::max(begin, at * window), to = std::min(end, (at + 1) * window);
      RecurrentPiece piece{.row = segment.row,
                           .first_query = segment.begin + from - begin,
                           .queries = to - from,
                           .known = std::min(from, from - begin + carried.kept[s]),
                           .begins = begins,
                           .cut = config_.bptt && at % *config_.bptt == 0};
      if (to == (at + 1) * window) {
        // The last windows, as far as the document has them and they are known.
        piece.keys = std::min(read, piece.known + piece.queries);
        piece.first_key = carried.before + segment.begin + (to - begin) - piece.keys;
      }
      pieces.push_back(piece);
      begins = false;
    }
  }
  return pieces;
}

void RecurrentVectors::put(const Forward& f, const std::vector<RecurrentPiece>& pieces, const Variable& after) const {
  std::vector<uint8_t> written(static_cast<size_t>(after.dim(0)), 0);
  for (const RecurrentPiece& piece : pieces) written[static_cast<size_t>(piece.row)] = 1;
  f.state.put(state_, after.value(), written);
}

double length_of(const std::vector<double>& x, size_t first, size_t count) {
  double square = 0;
  for (size_t i = first; i < first + count; ++i) square += x[i] * x[i];
  return std::sqrt(square);
}

void RecurrentVectors::report(const Forward& f, const Variable& before, const Variable& after) const {
  const std::vector<double> old = values_on_host(before.value()), now = values_on_host(after.value());
  std::vector<double> change(now.size());
  for (size_t i = 0; i < now.size(); ++i) change[i] = now[i] - old[i];
  const auto width = static_cast<size_t>(after.dim(2));
  double norm = 0, moved = 0;
  for (size_t n = 0; n < now.size(); n += width) {
    norm += length_of(now, n, width);
    moved += length_of(change, n, width);
  }
  const double count = static_cast<double>(now.size() / width);
  f.add_telemetry(name_ + ".norm", norm / count);
  f.add_telemetry(name_ + ".moved", moved / count);
  if (config_.gate != RecurrentGate::fixed) return;
  const RecurrentGateOf<Parameter>& gate =
      config_.update == RecurrentUpdate::single ? states_.mlp_gate : states_.attention_gate;
  const std::vector<double> biases = values_on_host(gate.bias.value());
  double keep = 0;
  for (const double bias : biases) keep += 1 / (1 + std::exp(-bias));
  f.add_telemetry(name_ + ".keep", keep / static_cast<double>(biases.size()));
}

}  // namespace quire
