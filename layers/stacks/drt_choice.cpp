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
void ChunkChoice::for_candidates(const ChunkCut& cut, const CarriedBlocks& carried, const Piece& piece,
                                 Body&& body) const {
  const int64_t all = carried.max_length + cut.max_chunks;
  for (size_t r = 0; r < cut.whole.size(); ++r) {
    const std::vector<WholeChunk>& whole = cut.whole[r];
    const auto row = static_cast<int64_t>(r);
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto take = [&](int64_t candidate, int64_t number) {
        const int64_t back = whole[i].number - number;
        if (!cut.named.empty() &&
            cut.named[static_cast<size_t>((row * cut.max_chunks + static_cast<int64_t>(i)) * all + candidate)] == 0) {
          return;
        }
        if (back >= config_.nearest && back <= config_.farthest())
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

Tensor ChunkChoice::mask(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, const Piece& piece,
                         const std::vector<int32_t>& best) const {
  const int64_t rows = f.batch.rows;
  const int64_t before = best.empty() ? 0 : config_.top_k, columns = before + piece.size();
  const Shape shape{rows, cut.max_chunks, columns};
  const auto made = [&] {
    if (f.state.device() == kMeta) return Tensor::empty(shape, DType::u8, kMeta);  // a plan reads no values
    std::vector<uint8_t> kept(static_cast<size_t>(rows * cut.max_chunks * columns), 0);
    for (size_t i = 0; i < best.size(); ++i) {
      const auto list = static_cast<int64_t>(i) / config_.top_k, k = static_cast<int64_t>(i) % config_.top_k;
      kept[static_cast<size_t>(list * columns + k)] = best[i] >= 0 ? 1 : 0;
    }
    for_candidates(cut, carried, piece, [&](int64_t row, int64_t query, int64_t candidate, int64_t) {
      kept[static_cast<size_t>((row * cut.max_chunks + query) * columns + before + candidate - piece.first)] = 1;
    });
    return Tensor::from(kept, shape, f.state.device());
  };
  // All groups have the same candidates, but not the same best ones.
  return best.empty() ? f.table("chunks.candidates", {}, made) : made();
}

Tensor ChunkChoice::found(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried) const {
  const int64_t rows = f.batch.rows, chosen_count = config_.top_k;
  return f.table("chunks.found", {}, [&] {
    std::vector<int64_t> count(static_cast<size_t>(rows * cut.max_chunks), 0);
    for_candidates(cut, carried, {0, carried.max_length + cut.max_chunks},
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
  for_candidates(cut, carried, piece, [&](int64_t row, int64_t query, int64_t candidate, int64_t number) {
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
                           const CarriedBlocks& carried, const Piece& piece, const ChunkStore* store,
                           const ChunkHooks& hooks) const {
  Tape tape(false);
  const Variable asking = Variable::constant(queries);
  std::vector<Variable> parts;
  if (piece.first < carried.max_length) {
    const Variable stored =
        Variable::constant(store->landmarks(f.state, carried, piece.first, std::min(piece.last, carried.max_length)));
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

Tensor ChunkChoice::operator()(const Forward& f, const Tensor& queries, const Tensor& landmarks, const Tensor& given,
                               const ChunkCut& cut, const CarriedBlocks& carried, const ChunkStore* store,
                               const ChunkHooks& hooks) const {
  Tape tape(false);
  const int64_t rows = f.batch.rows, all = carried.max_length + cut.max_chunks, chosen_count = config_.top_k;
  const Shape lists{rows, cut.max_chunks, chosen_count};
  std::vector<int32_t> best;  // candidates of the pieces before
  Variable best_wishes;
  for (Piece piece{0, 0};; piece.first = piece.last) {
    piece.last = piece.first + hooks.piece >= carried.max_length ? all : piece.first + hooks.piece;
    Variable wanting = given.defined()
                           ? slice(tape, Variable::constant(given), 2, piece.first, piece.last)
                           : Variable::constant(wishes(f, queries, landmarks, cut, carried, piece, store, hooks));
    if (!best.empty()) wanting = concatenate(tape, std::vector{best_wishes, wanting}, 2);
    const Tensor index = top_k(wanting.value(), chosen_count, mask(f, cut, carried, piece, best));
    if (piece.size() == all) return index;
    // A plan has no values: it goes on with the first candidates.
    std::vector<int32_t> chosen = index.device() == kMeta ? std::vector<int32_t>(static_cast<size_t>(index.numel()), 0)
                                                          : index.to_vector<int32_t>();
    const auto before = static_cast<int32_t>(best.empty() ? 0 : chosen_count);
    for (size_t i = 0; i < chosen.size(); ++i) {
      int32_t& at = chosen[i];
      if (at >= before) {
        at += static_cast<int32_t>(piece.first) - before;
      } else if (at >= 0) {
        at = best[i / static_cast<size_t>(chosen_count) * static_cast<size_t>(chosen_count) + static_cast<size_t>(at)];
      }
    }
    best = std::move(chosen);
    if (piece.last == all) return Tensor::from(best, lists, f.state.device());
    const Variable table = reshape(tape, wanting, {rows, cut.max_chunks, wanting.dim(2), 1});
    best_wishes = reshape(tape, gather_rows(tape, table, index), lists);
  }
}

}  // namespace quire
