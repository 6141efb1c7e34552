#include "layers/mixers/infini_heads.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/knn.h"

namespace quire {

InfiniHeads::InfiniHeads(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables)
    : name_(scope.path()),
      config_(place.options.get<InfiniConfig>()),
      shape_(HeadShape::of(place.model)),
      tail_(scope, place, std::move(tables), config_.carried()) {
  if (config_.remembers()) {
    gate_ = scope.param_without_decay("gate", {shape_.heads}, Initializer::constant(config_.gate.init));
    if (config_.gate.kind == InfiniGateKind::query) {
      gate_query_ = scope.param("gate_query", {shape_.heads, shape_.size}, Initializer::constant(0));
    }
    matrix_ = scope.state_register("memory", {shape_.key_heads, shape_.size, shape_.value_size}, {.wide = true});
    normaliser_ = scope.state_register("normaliser", {shape_.key_heads, shape_.size}, {.wide = true});
  }
}

InfiniHeads::Carried InfiniHeads::carried(const Forward& f) const {
  return {tail_.carried(
              f, [&](int64_t position) { return std::max(position % config_.block, config_.window.value_or(0)); }),
          {}};
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

Variable InfiniHeads::local_attention(const Forward& f, const Carried& carried, const Variable& q, const Variable& k,
                                      const Variable& v) const {
  const auto back = [&](int64_t position) { return config_.window ? *config_.window : position % config_.block; };
  return tail_.attend(f, carried, q, k, v,
                      {.name = "infini.first_visible",
                       .numbers = {config_.block, config_.window.value_or(0)},
                       .back = back,
                       .reach = config_.window ? *config_.window + 1 : config_.block});
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
  if (f.write_state) tail_.keep(f, k, v);
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
