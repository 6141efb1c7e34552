#include "layers/mixers/infini_heads.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/knn.h"
#include "autograd/functions/rotary.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

double norm_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

InfiniHeads::InfiniHeads(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables)
    : name_(scope.path()),
      random_scope_(hash_scope(scope.path() + ".dropout")),
      config_(place.options.get<InfiniConfig>()),
      shape_(HeadShape::of(place.model)),
      position_(place.layer.position),
      dropout_(place.model.dropout.attention),
      tables_(std::move(tables)),
      position_terms_(scope, place.model, place.layer, tables_) {
  if (config_.remembers()) {
    gate_ = scope.param_without_decay("gate", {shape_.heads}, Initializer::constant(config_.gate.init));
    if (config_.gate.kind == InfiniGateKind::query) {
      gate_query_ = scope.param("gate_query", {shape_.heads, shape_.size}, Initializer::constant(0));
    }
    matrix_ = scope.state_register("memory", {shape_.key_heads, shape_.size, shape_.value_size}, {.wide = true});
    normaliser_ = scope.state_register("normaliser", {shape_.key_heads, shape_.size}, {.wide = true});
  }
  const LogGroupId tail = scope.state_logs("tail", config_.carried());
  keys_ = scope.state_log(tail, "keys", {shape_.key_heads, shape_.size});
  values_ = scope.state_log(tail, "values", {shape_.key_heads, shape_.value_size});
}

InfiniHeads::Carried InfiniHeads::carried(const Forward& f) const {
  Carried all;
  std::vector<int64_t> first = f.state.lengths(keys_.group), count(first.size(), 0);
  for (const Segment& segment : f.state.segments()) {
    const int64_t seen = segment.carried ? f.state.written(keys_.group, segment.row) : 0;
    const int64_t kept = std::max(seen % config_.block, std::min(seen, config_.window.value_or(0)));
    all.seen.push_back(seen);
    all.kept.push_back(kept);
    all.before = std::max(all.before, kept);
    if (segment.carried) count[static_cast<size_t>(segment.row)] = kept;
  }
  // Random numbers of attention dropout depend on the number of slots, which must not depend on the rows of the pass.
  if (f.training && dropout_ > 0) all.before = config_.carried();
  if (all.before == 0) return all;
  for (size_t row = 0; row < first.size(); ++row) first[row] -= count[row];
  all.k = Variable::constant(f.state.gather(keys_, all.before, first, count));
  all.v = Variable::constant(f.state.gather(values_, all.before, first, count));
  return all;
}

// A token reads the memory when its document has complete blocks before its own. Tokens that neither read nor complete
// a block belong to no piece.
std::vector<InfiniPiece> InfiniHeads::pieces(const Forward& f, const Carried& carried) const {
  const std::vector<Segment> segments = f.state.segments();
  std::vector<InfiniPiece> pieces;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    bool begins = !segment.carried;
    const int64_t seen = carried.seen[s], end = seen + segment.count;
    for (int64_t block = seen / config_.block; block * config_.block < end; ++block) {
      const int64_t block_begin = block * config_.block;
      const int64_t from = std::max(seen, block_begin), to = std::min(end, block_begin + config_.block);
      const bool completes = to == block_begin + config_.block;
      if (block == 0 && !completes) continue;
      InfiniPiece piece{.row = segment.row,
                        .first_query = segment.begin + from - seen,
                        .queries = block > 0 ? to - from : 0,
                        .begins = begins,
                        .cut = config_.bptt && block % *config_.bptt == 0};
      if (completes) {
        piece.first_key = carried.before + segment.begin + block_begin - seen;
        piece.keys = config_.block;
      }
      pieces.push_back(piece);
      begins = false;
    }
    // The row's state belongs to a document that has written nothing.
    if (begins && segment.last) pieces.push_back({.row = segment.row, .begins = true});
  }
  return pieces;
}

Tensor InfiniHeads::first_visible(const Forward& f, const Carried& carried) const {
  std::vector<int64_t> numbers{config_.block, config_.window.value_or(0)};
  numbers.insert(numbers.end(), carried.seen.begin(), carried.seen.end());
  return f.table("infini.first_visible", numbers, [&] {
    const Batch& batch = f.batch;
    std::vector<int32_t> first(static_cast<size_t>(batch.rows * batch.length), static_cast<int32_t>(batch.length + 1));
    const std::vector<Segment> segments = f.state.segments();
    for (size_t s = 0; s < segments.size(); ++s) {
      const Segment& segment = segments[s];
      for (int64_t n = 0; n < segment.count; ++n) {
        const int64_t back =
            config_.window ? std::min(*config_.window, n + carried.kept[s]) : (carried.seen[s] + n) % config_.block;
        const int64_t t = segment.begin + n;
        first[static_cast<size_t>(batch.at(segment.row, t))] = static_cast<int32_t>(t - back);
      }
    }
    return Tensor::from(first, {batch.rows, batch.length}, f.state.device());
  });
}

Variable InfiniHeads::local_attention(const Forward& f, const Carried& carried, const Variable& q, const Variable& k,
                                      const Variable& v) const {
  Tape& tape = f.tape;
  const Device device = q.value().device();
  AttentionVariables x{q, k, v, carried.k, carried.v, {}, {}, {}, {}};
  ops::AttentionInputs settings;
  settings.first_visible = first_visible(f, carried);
  settings.scale = 1.0 / std::sqrt(static_cast<double>(shape_.size));
  settings.dropout = f.training ? dropout_ : 0;
  settings.key = f.key;
  settings.scope = random_scope_;
  settings.first_row = f.batch.first_row;
  if (carried.before > 0)
    settings.cache_head = Tensor::zeros({q.dim(0)}, DType::i32, device);  // newest in the last slot
  const int64_t reach = config_.window ? *config_.window + 1 : config_.block;
  position_terms_.add(f, x, std::min(q.dim(1) + carried.before, reach));
  if (position_.kind == Position::rope) {
    ops::RotaryInputs rotation;
    rotation.table = tables_->rotary(carried.before, q.dim(1), position_.rope.dims.value_or(shape_.size),
                                     position_.rope.base, wide_type(q.value().dtype()), device);
    rotation.origin = carried.before;
    rotation.interleaved = position_.rope.layout == RopeLayout::interleaved;
    x.q = rotary(tape, x.q, rotation);
    x.k = rotary(tape, x.k, rotation);
    if (carried.before > 0) {
      rotation.head = settings.cache_head;
      x.cache_k = rotary(tape, x.cache_k, rotation);
    }
  }
  return attention(tape, x, settings);
}

InfiniHeads::Remembered InfiniHeads::from_memory(const Forward& f, const Carried& carried,
                                                 const std::vector<InfiniPiece>& pieces, const Variable& q,
                                                 const Variable& k, const Variable& v) const {
  Tape& tape = f.tape;
  const InfiniTables tables =
      infini_tables(pieces, {f.batch.rows, f.batch.length, shape_.heads, shape_.key_heads}, f.state.device());
  const DType wide = wide_type(q.value().dtype());
  const auto with_carried = [&](const Variable& before, const Variable& x) {
    const bool all = tables.writes > 0 && carried.before > 0;
    return convert(tape, all ? concatenate(tape, std::vector{before, x}, 1) : x, wide);
  };
  const Tensor normaliser = f.state.current(normaliser_);
  const InfiniState begin{
      Variable::constant(f.state.current(matrix_)),
      Variable::constant(normaliser.reshape({normaliser.dim(0), normaliser.dim(1), normaliser.dim(2), 1}))};
  const InfiniRead read = infini_memory(tape, convert(tape, q, wide), with_carried(carried.k, k),
                                        with_carried(carried.v, v), begin, tables, config_.update, config_.keep);
  const InfiniState& end = read.after.empty() ? begin : read.after.back();
  if (f.write_state) {
    f.state.put(matrix_, end.matrix.value());
    f.state.put(normaliser_, end.normaliser.value().reshape(normaliser.shape()));
  }
  return {read.out, end};
}

// u8 [R, T, 1, 1]: 1 for tokens that read the memory.
Tensor InfiniHeads::reading(const Forward& f, const std::vector<InfiniPiece>& pieces) const {
  std::vector<int64_t> numbers{config_.block};
  for (const InfiniPiece& piece : pieces) {
    numbers.insert(numbers.end(), {piece.row, piece.first_query, piece.queries});
  }
  return f.table("infini.reading", numbers, [&] {
    std::vector<uint8_t> mask(static_cast<size_t>(f.batch.rows * f.batch.length), 0);
    for (const InfiniPiece& piece : pieces) {
      std::fill_n(mask.begin() + f.batch.at(piece.row, piece.first_query), piece.queries, 1);
    }
    return Tensor::from(mask, {f.batch.rows, f.batch.length, 1, 1}, f.state.device());
  });
}

// gate.kind: query: what the gate of each token and head adds to that of the head, [R T, H]; undefined otherwise.
Variable InfiniHeads::of_queries(Tape& tape, const Variable& q) const {
  if (!gate_query_.defined()) return {};
  const DType wide = wide_type(q.value().dtype());
  const Variable weights = reshape(tape, convert(tape, gate_query_, wide), {1, 1, shape_.heads, shape_.size});
  const Variable products = sum(tape, multiply(tape, convert(tape, q, wide), weights), -1);
  return convert(tape, reshape(tape, products, {q.dim(0) * q.dim(1), shape_.heads}), q.value().dtype());
}

Variable InfiniHeads::operator()(const Forward& f, const Variable& q, const Variable& k, const Variable& v) const {
  Tape& tape = f.tape;
  const DType type = q.value().dtype();
  const Carried carried = this->carried(f);
  const Variable local = local_attention(f, carried, q, k, v);
  if (f.write_state) {
    f.state.append(keys_, k.value());
    f.state.append(values_, v.value());
  }
  if (!config_.remembers()) return local;
  const std::vector<InfiniPiece> pieces = this->pieces(f, carried);
  const Remembered remembered = from_memory(f, carried, pieces, q, k, v);
  const bool literal = config_.empty_gate == InfiniEmptyGate::literal;
  Variable out = local;
  if (remembered.out.defined() || literal) {
    const Variable found = remembered.out.defined()
                               ? convert(tape, remembered.out, type)
                               : Variable::constant(Tensor::zeros(local.shape(), type, local.value().device()));
    const Variable content = of_queries(tape, q);
    out = gate_heads(tape, found, local, convert(tape, gate_, wide_type(type)), content, {});
    if (!literal) out = select(tape, reading(f, pieces), out, local);
    if (f.wants_telemetry()) report_share(f, pieces, found, local, content);
  }
  if (f.wants_telemetry()) report_memory(f, carried, remembered.end);
  return out;
}

// gate.H: the share of the memory in a head, for a query of zeros. share: that in the length of what heads put out, of
// tokens that read the memory. reading: the share of these tokens.
void InfiniHeads::report_share(const Forward& f, const std::vector<InfiniPiece>& pieces, const Variable& found,
                               const Variable& local, const Variable& content) const {
  const std::vector<double> biases = values_on_host(gate_.value());
  for (size_t h = 0; h < biases.size(); ++h) {
    f.add_telemetry(name_ + ".gate." + std::to_string(h), sigmoid_of(biases[h]));
  }
  const std::vector<double> a = values_on_host(found.value()), b = values_on_host(local.value());
  const std::vector<double> added = content.defined() ? values_on_host(content.value()) : std::vector<double>();
  const auto size = static_cast<size_t>(shape_.value_size);
  double of_memory = 0, of_local = 0, read = 0, all = 0;
  for (const InfiniPiece& piece : pieces) {
    read += static_cast<double>(piece.queries);
    const auto first = static_cast<size_t>(f.batch.at(piece.row, piece.first_query)) * biases.size();
    for (size_t n = first; n < first + static_cast<size_t>(piece.queries) * biases.size(); ++n) {
      const double gate = sigmoid_of(biases[n % biases.size()] + (added.empty() ? 0 : added[n]));
      of_memory += gate * norm_of({&a[n * size], size});
      of_local += (1 - gate) * norm_of({&b[n * size], size});
    }
  }
  for (const Segment& segment : f.state.segments()) all += static_cast<double>(segment.count);
  f.add_telemetry(name_ + ".share", of_memory > 0 ? of_memory / (of_memory + of_local) : 0);
  f.add_telemetry(name_ + ".reading", all > 0 ? read / all : 0);
}

// Means over the rows. tokens: how many the memory holds. norm and normaliser: the lengths of its two parts.
void InfiniHeads::report_memory(const Forward& f, const Carried& carried, const InfiniState& end) const {
  const auto rows = static_cast<double>(f.batch.rows);
  const std::vector<Segment> segments = f.state.segments();
  double tokens = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const int64_t seen = carried.seen[s] + segments[s].count;
    if (segments[s].last) tokens += static_cast<double>(seen - seen % config_.block);
  }
  const auto of_rows = [&](const Variable& x) {
    const std::vector<double> values = values_on_host(x.value());
    const size_t size = values.size() / static_cast<size_t>(f.batch.rows);
    double sum = 0;
    for (size_t n = 0; n < values.size(); n += size) sum += norm_of({&values[n], size});
    return sum / rows;
  };
  f.add_telemetry(name_ + ".tokens", tokens / rows);
  f.add_telemetry(name_ + ".norm", of_rows(end.matrix));
  f.add_telemetry(name_ + ".normaliser", of_rows(end.normaliser));
}

}  // namespace quire
