#include "layers/carried/choose_blocks.h"

#include <vector>

#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"

namespace quire {

namespace {

// Returns the values [.., K] of `of` [.., N] at an index [.., K]; 0 where it is negative.
Tensor values_at(const Tensor& of, const Tensor& index) {
  Tape tape(false);
  std::vector<int64_t> sizes(of.shape().begin(), of.shape().end());
  sizes.push_back(1);
  const Variable table = reshape(tape, Variable::constant(of), Shape(std::span<const int64_t>(sizes)));
  return reshape(tape, gather_rows(tape, table, index), index.shape()).value();
}

// Returns the candidates that an index into a piece names. A plan has no values: it goes on with the first ones.
std::vector<int32_t> numbers_of(const Tensor& index, int64_t first) {
  if (index.device() == kMeta) return std::vector<int32_t>(static_cast<size_t>(index.numel()), 0);
  std::vector<int32_t> numbers = index.to_vector<int32_t>();
  for (int32_t& number : numbers) number += number < 0 ? 0 : static_cast<int32_t>(first);
  return numbers;
}

// The best candidates of the pieces so far.
struct Best {
  std::vector<int32_t> numbers;  // [.., K]
  Tensor scores;

  // Joins those of a later piece, `added` with `more`.
  void join(const std::vector<int32_t>& added, const Tensor& more) {
    Tape tape(false);
    const auto k = static_cast<size_t>(more.dim(-1));
    std::vector<int32_t> both;
    std::vector<uint8_t> exists;
    for (size_t i = 0; i < numbers.size(); i += k) {
      both.insert(both.end(), numbers.begin() + static_cast<int64_t>(i), numbers.begin() + static_cast<int64_t>(i + k));
      both.insert(both.end(), added.begin() + static_cast<int64_t>(i), added.begin() + static_cast<int64_t>(i + k));
    }
    for (const int32_t number : both) exists.push_back(number < 0 ? 0 : 1);
    const Tensor joined =
        concatenate(tape, std::vector{Variable::constant(scores), Variable::constant(more)}, -1).value();
    const Tensor order = top_k(joined, more.dim(-1), Tensor::from(exists, joined.shape(), joined.device()));
    const std::vector<int32_t> places = numbers_of(order, 0);
    for (size_t i = 0; i < places.size(); ++i) {
      numbers[i] = places[i] < 0 ? -1 : both[i / k * 2 * k + static_cast<size_t>(places[i])];
    }
    scores = values_at(joined, order);
  }
};

}  // namespace

std::vector<BlockPiece> BlockChoice::pieces() const {
  std::vector<BlockPiece> all;
  for (int64_t first = 0; first == 0 || first < stored; first += piece) all.push_back({first, first + piece});
  all.back().last = count;
  return all;
}

Tensor choose_blocks(const BlockChoice& choice, const OfPiece& scores_of, const OfPiece& mask_of, Tensor* scores) {
  Best best;
  Tensor index;
  for (const BlockPiece& piece : choice.pieces()) {
    const Tensor of_piece = scores_of(piece);
    index = top_k(of_piece, choice.top_k, mask_of(piece));
    if (piece.size() == choice.count) {
      if (scores != nullptr) *scores = values_at(of_piece, index);
      return index;
    }
    std::vector<int32_t> numbers = numbers_of(index, piece.first);
    if (best.numbers.empty()) {
      best = {std::move(numbers), values_at(of_piece, index)};
    } else {
      best.join(numbers, values_at(of_piece, index));
    }
  }
  if (scores != nullptr) *scores = best.scores;
  return Tensor::from(best.numbers, index.shape(), index.device());
}

Tensor block_scores(const Tensor& q, const Tensor& keys, double scale) {
  const int64_t rows = q.dim(0), tokens = q.dim(1), heads = q.dim(2), size = q.dim(3);
  const int64_t count = keys.dim(1), key_heads = keys.dim(2);
  Tape tape(false);
  const Variable queries = permute(
      tape, reshape(tape, Variable::constant(q), {rows, tokens, key_heads, heads / key_heads, size}), {0, 2, 3, 1, 4});
  const Variable of_blocks = permute(tape, Variable::constant(keys), {0, 2, 1, 3});
  const Variable products =
      matmul(tape, queries, reshape(tape, of_blocks, {rows, key_heads, 1, count, size}), {.transpose_b = true});
  return quire::scale(tape, reshape(tape, products, {rows, heads, tokens, count}), scale).value();
}

}  // namespace quire
