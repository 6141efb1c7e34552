#include "layers/mixers/infini_heads.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/knn.h"
#include "autograd/functions/rotary.h"
#include "autograd/functions/rows.h"

namespace quire {

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
  const LogGroupId tail = scope.state_logs("tail", config_.carried(), {.waits = true});
  keys_ = scope.state_log(tail, "keys", {shape_.key_heads, shape_.size});
  values_ = scope.state_log(tail, "values", {shape_.key_heads, shape_.value_size});
}

InfiniHeads::Carried InfiniHeads::carried(const Forward& f) const {
  Carried all;
  std::vector<int64_t> first = f.state.lengths(keys_.group), count(first.size(), 0);
  for (const Segment& segment : f.state.segments()) {
    const int64_t position = f.batch.position[static_cast<size_t>(f.batch.at(segment.row, segment.begin))];
    const int64_t known = segment.carried ? first[static_cast<size_t>(segment.row)] : 0;
    const int64_t kept = std::min(known, std::max(position % config_.block, config_.window.value_or(0)));
    all.position.push_back(position);
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

// Keeps the last tokens of each row's last segment, as many as the log holds.
void InfiniHeads::keep_tail(const Forward& f, const Variable& k, const Variable& v) const {
  const int64_t rows = k.dim(0), length = k.dim(1), kept = std::min(length, config_.carried());
  std::vector<int64_t> first(static_cast<size_t>(rows), 0), count;
  std::vector<int32_t> places(static_cast<size_t>(rows * kept), -1);
  for (int64_t row = 0; row < rows; ++row) {
    const Segment segment = f.state.last_segment(row);
    count.push_back(std::min(segment.count, kept));
    for (int64_t n = 0; n < count.back(); ++n) {
      places[static_cast<size_t>(row * kept + n)] =
          static_cast<int32_t>(segment.begin + segment.count - count.back() + n);
    }
  }
  const Tensor index = Tensor::from(places, {rows, kept}, f.state.device());
  Tape idle(false);
  for (const auto& [log, x] : {std::pair{keys_, &k}, std::pair{values_, &v}}) {
    const Variable lines = Variable::constant(x->value().reshape({rows, length, x->dim(2) * x->dim(3)}));
    const Tensor tail = gather_rows(idle, lines, index).value();
    f.state.append(log, tail.reshape({rows, kept, x->dim(2), x->dim(3)}), first, count);
  }
}

// A token reads the memory when a block of its document has been written. Tokens that neither read nor complete a block
// belong to no piece.
std::vector<InfiniPiece> InfiniHeads::pieces(const Forward& f, Carried& carried) const {
  const std::vector<Segment> segments = f.state.segments();
  const std::vector<uint8_t> is_empty = f.state.is_empty(matrix_);
  std::vector<InfiniPiece> pieces;
  carried.filled.assign(static_cast<size_t>(f.batch.rows), 0);
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    bool begins = !segment.carried, filled = is_empty[s] == 0;
    const int64_t begin = carried.position[s], end = begin + segment.count;
    for (int64_t block = begin / config_.block; block * config_.block < end; ++block) {
      const int64_t from = std::max(begin, block * config_.block), to = std::min(end, (block + 1) * config_.block);
      const bool completes = to == (block + 1) * config_.block;
      if (!filled && !completes) continue;
      InfiniPiece piece{.row = segment.row,
                        .first_query = segment.begin + from - begin,
                        .queries = filled ? to - from : 0,
                        .begins = begins,
                        .cut = config_.bptt && block % *config_.bptt == 0};
      if (completes) {
        // A block whose beginning was not read, or is no longer known, is written as far as it is known.
        const int64_t of_tail = from == begin ? std::min(from - block * config_.block, carried.kept[s]) : 0;
        piece.first_key = carried.before + piece.first_query - of_tail;
        piece.keys = to - from + of_tail;
        filled = true;
      }
      pieces.push_back(piece);
      begins = false;
    }
    if (segment.last) carried.filled[static_cast<size_t>(segment.row)] = filled ? 1 : 0;
  }
  return pieces;
}

Tensor InfiniHeads::first_visible(const Forward& f, const Carried& carried) const {
  std::vector<int64_t> numbers{config_.block, config_.window.value_or(0)};
  numbers.insert(numbers.end(), carried.position.begin(), carried.position.end());
  numbers.insert(numbers.end(), carried.kept.begin(), carried.kept.end());
  return f.table("infini.first_visible", numbers, [&] {
    const Batch& batch = f.batch;
    std::vector<int32_t> first(static_cast<size_t>(batch.rows * batch.length), static_cast<int32_t>(batch.length + 1));
    const std::vector<Segment> segments = f.state.segments();
    for (size_t s = 0; s < segments.size(); ++s) {
      const Segment& segment = segments[s];
      for (int64_t n = 0; n < segment.count; ++n) {
        const int64_t own = config_.window ? *config_.window : (carried.position[s] + n) % config_.block;
        const int64_t back = std::min(own, n + carried.kept[s]);
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
    f.state.put(matrix_, end.matrix.value(), carried.filled);
    f.state.put(normaliser_, end.normaliser.value().reshape(normaliser.shape()), carried.filled);
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
  Carried carried = this->carried(f);
  const Variable local = local_attention(f, carried, q, k, v);
  if (f.write_state) keep_tail(f, k, v);
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

}  // namespace quire
