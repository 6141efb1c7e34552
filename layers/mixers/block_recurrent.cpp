#include "layers/mixers/block_recurrent.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/norm.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// Published deviations: the positions of the states tell them apart and are large.
constexpr double kPositionStd = 1, kInitialStd = 0.1, kGateStd = 0.1;

const BlockRecurrentConfig& options(const Place& place) {
  return place.options.get<BlockRecurrentConfig>();
}

// Keys that the next update of the states may need.
int64_t carried_tokens(const BlockRecurrentConfig& config) {
  return (config.previous_window ? 2 : 1) * config.window - (config.previous_window ? 1 : 0);
}

}  // namespace

BlockRecurrent::BlockRecurrent(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables)
    : name_(scope.path()),
      config_(options(place)),
      shape_(HeadShape::of(place.model)),
      norm_eps_(place.model.norm.eps),
      tail_(scope, place, std::move(tables), carried_tokens(config_)),
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
  const Initialization initial(place.model);
  const int64_t width = place.model.width, inner = shape_.heads * shape_.size, hidden = place.model.mlp.hidden;
  const auto scale = [&](const Scope& of, const char* name) {
    return config_.qk_norm ? of.param_without_decay(name, {shape_.heads}, Initializer::constant(1)) : Parameter();
  };
  self_scale_ = scale(scope, "self_scale");
  state_scale_ = scale(scope, "state_scale");
  const Scope own = scope.child("states");
  const auto matrix = [&](const char* name, int64_t out, int64_t in) {
    return own.child(name).matrix("weight", out, in, initial.matrix(in));
  };
  RecurrentWeightsOf<Parameter>& w = states_;
  w.norm = own.child("norm").param("weight", {width}, Initializer::constant(1));
  w.position = own.param_without_decay("position", {config_.states, width}, Initializer::normal(kPositionStd));
  w.initial = own.param_without_decay("initial", {config_.states, width}, Initializer::normal(kInitialStd));
  w.query = matrix("query", inner, width);
  w.key = matrix("key", inner, width);
  w.value = matrix("value", inner, width);
  w.token_query = matrix("token_query", inner, width);
  w.self_scale = scale(own, "self_scale");
  w.token_scale = scale(own, "token_scale");
  const auto gate = [&](const char* name, int64_t in) {
    RecurrentGateOf<Parameter> made;
    if (config_.gate == RecurrentGate::residual) return made;
    const Scope of = own.child(name);
    const bool lstm = config_.gate == RecurrentGate::lstm;
    made.bias = of.param_without_decay("bias", lstm ? Shape{2, width} : Shape{width},
                                       Initializer{.mean = config_.gate_init, .std = kGateStd});
    if (config_.gate == RecurrentGate::fixed) return made;
    made.weight = of.matrix("weight", (lstm ? 2 : 1) * width, in,
                            Initializer::normal(std::sqrt(kGateStd / static_cast<double>(in))), lstm ? 2 : 1);
    return made;
  };
  if (config_.update != RecurrentUpdate::single) {
    w.out = matrix("out", width, 2 * inner);
    w.attention_gate = gate("attention_gate", 2 * inner);
  }
  if (config_.update != RecurrentUpdate::skip) {
    const bool dual = config_.update == RecurrentUpdate::dual;
    if (dual) w.mlp_norm = own.child("mlp_norm").param("weight", {width}, Initializer::constant(1));
    w.up = matrix("up", hidden, dual ? width : 2 * inner);
    w.down = matrix("down", width, hidden);
    w.mlp_gate = gate("mlp_gate", hidden);
  }
  state_ = scope.state_register("state", {config_.states, width}, {.wide = true});
}

RecurrentWeights BlockRecurrent::state_weights() const {
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

// The windows of a document that a row reads in this pass. One that is not complete at the end of the pass is completed
// by a later one.
std::vector<RecurrentPiece> BlockRecurrent::pieces(const Forward& f, const CarriedTokens& carried) const {
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
                           .begins = begins,
                           .cut = config_.bptt && at % *config_.bptt == 0};
      if (to == (at + 1) * window) {
        // The last windows, as far as the document has them and they are known.
        piece.keys = std::min({read, to, to - begin + carried.kept[s]});
        piece.first_key = carried.before + segment.begin + (to - begin) - piece.keys;
      }
      pieces.push_back(piece);
      begins = false;
    }
  }
  return pieces;
}

Variable BlockRecurrent::heads_of(Tape& tape, const Linear& projection, const Variable& z) const {
  const Variable y = reshape(tape, projection(tape, z), {z.dim(0), z.dim(1), shape_.heads, shape_.size});
  return config_.qk_norm ? l2_normalize(tape, y, kRecurrentKeyEps) : y;
}

Variable BlockRecurrent::operator()(const Forward& f, const PartInput& input) const {
  Tape& tape = f.tape;
  const Variable z = input.normalised(tape);
  const int64_t rows = z.dim(0), length = z.dim(1), inner = shape_.heads * shape_.size, window = config_.window;
  const Variable q = heads_of(tape, query_, z), k = heads_of(tape, key_, z);
  const Variable v = reshape(tape, value_(tape, z), {rows, length, shape_.heads, shape_.size});
  Variable q_states = heads_of(tape, state_query_, z);
  if (config_.qk_norm) q_states = scale_heads(tape, q_states, state_scale_);

  const int64_t read = config_.previous_window ? 2 : 1;
  const CarriedTokens carried =
      tail_.carried(f, [&](int64_t position) { return std::max(window, position % window + (read - 1) * window); });
  const Variable own = tail_.attend(f, carried, q, k, v,
                                    {.name = "block_recurrent.first_visible",
                                     .numbers = {window},
                                     .back = [window](int64_t) { return window; },
                                     .reach = window + 1,
                                     .attend_self = config_.attend_self,
                                     .scale = self_scale_});
  if (f.write_state) tail_.keep(f, k, v);

  const std::vector<RecurrentPiece> pieces = this->pieces(f, carried);
  const RecurrentTables tables = recurrent_tables(pieces, rows, length, read * window, f.state.device());
  const auto with_carried = [&](const Variable& before, const Variable& x) {
    return carried.before > 0 ? concatenate(tape, std::vector{before, x}, 1) : x;
  };
  const Variable before = Variable::constant(f.state.current(state_));
  const RecurrentResult result =
      recurrent_states(tape, config_, {shape_.heads, norm_eps_}, state_weights(), q_states, with_carried(carried.k, k),
                       with_carried(carried.v, v), before, tables);
  const Variable& after = result.after.empty() ? before : result.after.back();
  if (f.write_state) {
    // Rows without tokens keep what they have.
    std::vector<uint8_t> written(static_cast<size_t>(rows), 0);
    for (const RecurrentPiece& piece : pieces) written[static_cast<size_t>(piece.row)] = 1;
    f.state.put(state_, after.value(), written);
  }
  if (f.wants_telemetry()) report(f, pieces, own, result.read, before, after);
  const auto lines = [&](const Variable& x) { return reshape(tape, x, {rows, length, inner}); };
  return out_(tape, concatenate(tape, std::vector{lines(own), lines(result.read)}, 2), input.residual);
}

// share: that of the states in the length of what the two attentions put out. norm: the length of a state vector, a
// mean over rows and states. moved: the length of its change in this pass. keep: the mean share of a fixed gate.
void BlockRecurrent::report(const Forward& f, const std::vector<RecurrentPiece>& pieces, const Variable& own,
                            const Variable& read, const Variable& before, const Variable& after) const {
  const std::vector<double> of_tokens = values_on_host(own.value()), of_states = values_on_host(read.value());
  const auto size = static_cast<size_t>(shape_.size), heads = static_cast<size_t>(shape_.heads);
  const auto length = [](const std::vector<double>& x, size_t first, size_t count) {
    double square = 0;
    for (size_t i = first; i < first + count; ++i) square += x[i] * x[i];
    return std::sqrt(square);
  };
  double a = 0, b = 0;
  for (const RecurrentPiece& piece : pieces) {
    const auto first = static_cast<size_t>(f.batch.at(piece.row, piece.first_query)) * heads;
    for (size_t n = first; n < first + static_cast<size_t>(piece.queries) * heads; ++n) {
      a += length(of_tokens, n * size, size);
      b += length(of_states, n * size, size);
    }
  }
  f.add_telemetry(name_ + ".share", a + b > 0 ? b / (a + b) : 0);
  const std::vector<double> old = values_on_host(before.value()), now = values_on_host(after.value());
  std::vector<double> change(now.size());
  for (size_t i = 0; i < now.size(); ++i) change[i] = now[i] - old[i];
  const auto width = static_cast<size_t>(after.dim(2));
  double norm = 0, moved = 0;
  for (size_t n = 0; n < now.size(); n += width) {
    norm += length(now, n, width);
    moved += length(change, n, width);
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
