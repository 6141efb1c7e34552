#include "layers/stacks/drt_choice.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "kernels/elementwise.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// In (0, 1), from the upper bits.
double uniform(uint32_t bits) {
  return (static_cast<double>(bits >> 8) + 0.5) * 0x1p-24;
}

}  // namespace

ChunkChoice::ChunkChoice(const std::string& name, const DrtConfig& config, int64_t group, double scale)
    : config_(config), group_(group), scale_(scale), random_scope_(hash_scope(name + ".noise")) {}

template <typename Body>
void ChunkChoice::for_candidates(const GivenScores& given, const ChunkCut& cut, const CarriedBlocks& carried,
                                 const Piece& piece, Body&& body) const {
  for (size_t r = 0; r < cut.whole.size(); ++r) {
    const std::vector<WholeChunk>& whole = cut.whole[r];
    const auto row = static_cast<int64_t>(r);
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto take = [&](int64_t candidate, int64_t number) {
        const int64_t back = whole[i].number - number;
        if (back < config_.nearest || back > config_.farthest()) return;
        if (given.names && !given.names(row, static_cast<int64_t>(i), number)) return;
        body(row, static_cast<int64_t>(i), candidate, number);
      };
      if (whole[i].carried) {
        const int64_t oldest = carried.max_length - carried.length[r];
        for (int64_t j = std::max(piece.first, oldest); j < std::min(piece.last, carried.max_length); ++j) {
          take(j, carried.written[r] - (carried.max_length - j));
        }
      }
      for (int64_t k = 0; piece.last > carried.max_length && k < static_cast<int64_t>(i); ++k) {
        const WholeChunk& chunk = whole[static_cast<size_t>(k)];
        if (chunk.segment == whole[i].segment) take(carried.max_length + k, chunk.number);
      }
    }
  }
}

Tensor ChunkChoice::mask(const Forward& f, const GivenScores& given, const ChunkCut& cut, const CarriedBlocks& carried,
                         const Piece& piece) const {
  const Shape shape{f.batch.rows, cut.max_chunks, piece.size()};
  const auto made = [&] {
    if (f.state.device() == kMeta) return Tensor::empty(shape, DType::u8, kMeta);  // a plan reads no values
    std::vector<uint8_t> kept(static_cast<size_t>(shape.numel()), 0);
    for_candidates(given, cut, carried, piece, [&](int64_t row, int64_t query, int64_t candidate, int64_t) {
      kept[static_cast<size_t>((row * cut.max_chunks + query) * piece.size() + candidate - piece.first)] = 1;
    });
    return Tensor::from(kept, shape, f.state.device());
  };
  // All groups have the same candidates.
  return piece.size() == carried.max_length + cut.max_chunks ? f.table("chunks.candidates", {}, made) : made();
}

Tensor ChunkChoice::found(const Forward& f, const GivenScores& given, const ChunkCut& cut,
                          const CarriedBlocks& carried) const {
  const int64_t rows = f.batch.rows, chosen_count = config_.top_k;
  return f.table("chunks.found", {}, [&] {
    std::vector<int64_t> count(static_cast<size_t>(rows * cut.max_chunks), 0);
    for_candidates(given, cut, carried, {0, carried.max_length + cut.max_chunks},
                   [&](int64_t row, int64_t query, int64_t, int64_t) {
                     ++count[static_cast<size_t>(row * cut.max_chunks + query)];
                   });
    std::vector<uint8_t> kept;
    for (const int64_t candidates : count) {
      for (int64_t k = 0; k < chosen_count; ++k) kept.push_back(k < candidates ? 1 : 0);
    }
    return Tensor::from(kept, {rows, cut.max_chunks, chosen_count}, f.state.device());
  });
}

Tensor ChunkChoice::noise(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, const Piece& piece,
                          const Tensor& like, const ChunkHooks& hooks) const {
  const Shape shape{f.batch.rows, cut.max_chunks, piece.size()};
  if (like.device() == kMeta) return Tensor::empty(shape, like.dtype(), kMeta);
  std::vector<double> values(static_cast<size_t>(shape.numel()), 0);
  for_candidates({}, cut, carried, piece, [&](int64_t row, int64_t query, int64_t candidate, int64_t number) {
    const WholeChunk& chunk = cut.whole[static_cast<size_t>(row)][static_cast<size_t>(query)];
    // At evaluation what is drawn for a document does not depend on the row that reads it.
    const int64_t stream =
        f.training ? f.batch.first_row + row : f.batch.document[static_cast<size_t>(f.batch.at(row, chunk.mark))];
    const auto bits = philox(f.key, random_scope_, static_cast<uint32_t>(stream), static_cast<uint32_t>(chunk.mark),
                             static_cast<uint32_t>(number / 4));
    const double u = uniform(bits[static_cast<size_t>(number % 4)]);
    double drawn = config_.scores == ChunkScores::random ? u : -std::log(-std::log(u)) * config_.noise;
    if (hooks.noise) drawn = hooks.noise(group_, row, query, candidate);
    values[static_cast<size_t>((row * cut.max_chunks + query) * piece.size() + candidate - piece.first)] = drawn;
  });
  return tensor_of(values, shape, like.dtype(), like.device());
}

Tensor ChunkChoice::wishes(const Forward& f, const Tensor& queries, const Tensor& landmarks, const ChunkCut& cut,
                           const CarriedBlocks& carried, const Piece& piece, const BlockLog* store,
                           const ChunkHooks& hooks) const {
  Tape tape(false);
  const Variable asking = Variable::constant(queries);
  std::vector<Variable> parts;
  if (piece.first < carried.max_length) {
    const Variable stored =
        Variable::constant(store->summaries(f.state, carried, piece.first, std::min(piece.last, carried.max_length)));
    parts.push_back(matmul(tape, asking, convert(tape, stored, queries.dtype()), {.transpose_b = true}));
  }
  if (piece.last > carried.max_length) {
    parts.push_back(matmul(tape, asking, Variable::constant(landmarks), {.transpose_b = true}));
  }
  const Variable products = parts.size() == 1 ? parts.front() : concatenate(tape, parts, 2);
  const Tensor scores = scale(tape, products, scale_).value();
  hooks.see("groups." + std::to_string(group_) + ".scores", Variable::constant(scores));
  if (config_.scores == ChunkScores::random) return noise(f, cut, carried, piece, scores, hooks);
  if (!f.training || config_.noise == 0) return scores;
  const Tensor drawn = noise(f, cut, carried, piece, scores, hooks);
  ops::add(drawn, scores, drawn, 1, 1);
  return drawn;
}

Tensor ChunkChoice::operator()(const Forward& f, const Tensor& queries, const Tensor& landmarks, GivenScores& given,
                               const ChunkCut& cut, const CarriedBlocks& carried, const BlockLog* store,
                               const ChunkHooks& hooks) const {
  if (given.index.defined()) return given.index;
  const BlockChoice choice{.stored = carried.max_length,
                           .count = carried.max_length + cut.max_chunks,
                           .top_k = config_.top_k,
                           .piece = hooks.piece};
  const auto candidates = [&](const Piece& piece) { return mask(f, given, cut, carried, piece); };
  if (given.of) return given.index = choose_blocks(choice, given.of, candidates, &given.scores);
  const auto scores = [&](const Piece& piece) {
    return wishes(f, queries, landmarks, cut, carried, piece, store, hooks);
  };
  return choose_blocks(choice, scores, candidates);
}

}  // namespace quire
