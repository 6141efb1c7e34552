#include "layers/mixers/block_recurrent_feedback.h"

#include "autograd/functions/rows.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// The sum of the lengths of the vectors of heads.
double total_length(const Variable& heads) {
  const std::vector<double> all = values_on_host(heads.value());
  const auto size = static_cast<size_t>(heads.dim(3));
  double sum = 0;
  for (size_t n = 0; n < all.size(); n += size) sum += length_of(all, n, size);
  return sum;
}

Variable joined(Tape& tape, const Variable& before, const Variable& x) {
  return before.defined() ? concatenate(tape, std::vector{before, x}, 1) : x;
}

// x [R, N, H, D], index i32 [R, M].
Variable gather_heads(Tape& tape, const Variable& x, const Tensor& index) {
  const Variable lines = reshape(tape, x, {x.dim(0), x.dim(1), x.dim(2) * x.dim(3)});
  return reshape(tape, gather_rows(tape, lines, index), {x.dim(0), index.dim(1), x.dim(2), x.dim(3)});
}

// Random numbers of their own for each step.
RandomKey key_of_step(RandomKey key, size_t n) {
  static const uint32_t scope = hash_scope("block_recurrent.step");
  return {philox(key, scope, static_cast<uint32_t>(n), 0, 0)[0], key.step};
}

int64_t carried_by(const BlockRecurrentConfig& config, bool owns) {
  return owns ? RecurrentVectors::carried_tokens(config) : config.window;
}

}  // namespace

FeedbackLayer::FeedbackLayer(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables, bool owns,
                             const OfStep& step, const Keys& before, const FeedbackHooks& hooks)
    : name_(scope.path()),
      config_(place.options.get<BlockRecurrentConfig>()),
      tokens_(scope, place, std::move(tables), carried_by(config_, owns)),
      step_(step),
      before_(before),
      hooks_(hooks) {
  if (owns) vectors_.emplace(scope, place);
  own_ = {scope.leaves_value("keys"), scope.leaves_value("values")};
}

Variable FeedbackLayer::operator()(const Forward& f, const PartInput& input) const {
  Tape& tape = f.tape;
  const RecurrentTokens::Heads heads = tokens_.heads(tape, input.normalised(tape));
  CarriedTokens carried;
  carried.k = f.value(before_.k), carried.v = f.value(before_.v);
  carried.before = carried.k.defined() ? carried.k.dim(1) : 0;
  const Variable own = tokens_.attend(f, carried, heads, f.value(step_.visible).value());
  const RecurrentSight sight{
      .states = {}, .normed = {}, .keys = f.value(step_.state_keys), .values = f.value(step_.state_values)};
  const Variable read = read_states(tape, config_, heads.q_states, {sight}, f.value(step_.list).value());
  f.leave_value(own_.k, heads.k);
  f.leave_value(own_.v, heads.v);
  hooks_.see(name_ + ".own", own);
  hooks_.see(name_ + ".read", read);
  if (f.wants_telemetry()) {
    f.add_telemetry(name_ + ".own", total_length(own));
    f.add_telemetry(name_ + ".read", total_length(read));
  }
  return tokens_.out(tape, own, read, input.residual);
}

FeedbackStack::FeedbackStack(const Scope& scope, const ModelConfig& model)
    : drops_(model.dropout.attention > 0 || model.dropout.mlp > 0 || model.dropout.residual > 0),
      step_{scope.leaves_value("visible"), scope.leaves_value("list"), scope.leaves_value("keys"),
            scope.leaves_value("values")} {
  const std::vector<LayerConfig> layers = model.layer_configs();
  config_ = layers.front().attention.mechanism.options.get<BlockRecurrentConfig>();
  owner_ = static_cast<size_t>(model.layer_index(*config_.feedback));
  const auto tables = std::make_shared<PositionTables>();
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const Scope tail = scope.child("tails", index);
    const FeedbackLayer::Keys before{tail.leaves_value("keys"), tail.leaves_value("values")};
    const auto make = [&](const Scope& part, const ModelConfig& of_layer) {
      for (const char* name : {".visible", ".list", ".keys", ".values"}) part.reads_value(scope.path() + name);
      for (const char* name : {".keys", ".values"}) part.reads_value(tail.path() + name);
      const Place place{of_layer, layers[i], layers[i].attention.mechanism.options, index};
      auto layer = std::make_unique<FeedbackLayer>(part, place, tables, i == owner_, step_, before, hooks_);
      layers_.push_back(layer.get());
      return layer;
    };
    for (auto& block :
         make_blocks(scope.root(), model, index, index + 1, {{"attention", Recompute::attention, make}})) {
      blocks_.push_back(std::move(block));
    }
  }
}

FeedbackStack::Walk FeedbackStack::begin(const Forward& f, const Variable& x) const {
  const int64_t rows = x.dim(0), length = x.dim(1), window = config_.window;
  Walk walk;
  CarriedTokens of_owner;
  for (size_t i = 0; i < layers_.size(); ++i) {
    // A pass of one token has no second step.
    CarriedTokens carried = layers_[i]->tokens().carried(f, length > 1 ? window : 0);
    walk.tails.push_back({carried.k, carried.v});
    if (i == owner_) of_owner = std::move(carried);
  }
  walk.pieces = layers_[owner_]->vectors().pieces(f, of_owner);
  // Keys of an update count from the first one before its step.
  for (RecurrentPiece& piece : walk.pieces) piece.first_key = of_owner.before + piece.queries - piece.keys;
  // Random numbers count tokens and slots, which must not depend on other rows.
  const int64_t width = f.training && drops_ ? std::min(window, length) : 0;
  const int64_t kept = RecurrentVectors::carried_tokens(config_);
  walk.windows = walk_windows(walk.pieces, config_, {rows, length, width, kept}, f.state.device());
  const int64_t read = (config_.previous_window ? 2 : 1) * window;
  walk.updates = recurrent_tables(walk.pieces, rows, length, read, config_.mask_empty, f.state.device()).steps;
  walk.k.resize(layers_.size());
  walk.v.resize(layers_.size());
  return walk;
}

FeedbackStack::Tail FeedbackStack::next_tail(Tape& tape, const WindowStep& step, const Tail& tail, const Tail& own,
                                             std::map<int64_t, Tensor>& slots) const {
  const int64_t count = tail.k.dim(1);
  if (step.leaves_own_keys(count)) return own;
  Tensor& index = slots[count];
  if (!index.defined()) index = step.next_slots(count, own.k.value().device());
  return {gather_heads(tape, joined(tape, tail.k, own.k), index),
          gather_heads(tape, joined(tape, tail.v, own.v), index)};
}

Variable FeedbackStack::read(const Forward& f, const Variable& x, size_t n, Walk& walk, Variable& states) const {
  Tape& tape = f.tape;
  const RecurrentVectors& vectors = layers_[owner_]->vectors();
  const RecurrentRule rule(tape, config_, vectors.shape(), vectors.weights(), x.value().dtype());
  const RecurrentSight sight = rule.before(states, walk.updates[n]);
  const WindowStep& step = walk.windows.steps[n];
  f.leave_value(step_.visible, Variable::constant(step.visible));
  f.leave_value(step_.list, Variable::constant(step.list));
  f.leave_value(step_.state_keys, sight.keys);
  f.leave_value(step_.state_values, sight.values);
  Forward pass = f;
  pass.key = key_of_step(f.key, n);
  std::map<int64_t, Tensor> slots;
  Variable y = gather_rows(tape, x, step.cells);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Tail& tail = walk.tails[i];
    f.leave_value(layers_[i]->before().k, tail.k);
    f.leave_value(layers_[i]->before().v, tail.v);
    y = (*blocks_[i])(pass, y);
    const Tail own{f.value(layers_[i]->own().k), f.value(layers_[i]->own().v)};
    if (step.ends && f.write_state) {
      walk.k[i].push_back(own.k.detached());
      walk.v[i].push_back(own.v.detached());
    }
    if (i == owner_) {
      states = rule.after(sight, walk.updates[n], joined(tape, tail.k, own.k), joined(tape, tail.v, own.v));
      hooks_.see("states", states);
    }
    if (n + 1 < walk.windows.steps.size()) tail = next_tail(tape, step, tail, own, slots);
  }
  return y;
}

// Keeps the keys of the pass's last tokens.
void FeedbackStack::keep(const Forward& f, const Walk& walk) const {
  Tape idle(false);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto of_pass = [&](const std::vector<Variable>& steps) {
      return gather_heads(idle, concatenate(idle, steps, 1), walk.windows.place_kept);
    };
    layers_[i]->tokens().keep(f, of_pass(walk.k[i]), of_pass(walk.v[i]));
  }
}

Variable FeedbackStack::operator()(const Forward& f, const Variable& x) const {
  Walk walk = begin(f, x);
  if (walk.windows.steps.empty()) return x;
  Telemetry of_steps;
  Forward pass = f;
  pass.telemetry = f.wants_telemetry() ? &of_steps : nullptr;
  const RecurrentVectors& vectors = layers_[owner_]->vectors();
  const Variable before = vectors.carried(f);
  Variable states = before;
  std::vector<Variable> outputs;
  for (size_t n = 0; n < walk.windows.steps.size(); ++n) outputs.push_back(read(pass, x, n, walk, states));
  if (f.write_state) {
    keep(f, walk);
    vectors.put(f, walk.pieces, states);
  }
  if (f.wants_telemetry()) {
    std::map<std::string, double> sums;
    for (const auto& [name, number] : of_steps) sums[name] += number;
    for (const FeedbackLayer* layer : layers_) {
      const double own = sums[layer->name() + ".own"], read = sums[layer->name() + ".read"];
      f.add_telemetry(layer->name() + ".share", own + read > 0 ? read / (own + read) : 0);
    }
    vectors.report(f, before, states);
  }
  return gather_rows(f.tape, concatenate(f.tape, outputs, 1), walk.windows.place);
}

}  // namespace quire
