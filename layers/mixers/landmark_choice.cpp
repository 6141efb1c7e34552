// Chooses the stored blocks that queries of landmark attention read, and the positions where these are put.
#include <algorithm>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "kernels/knn.h"
#include "layers/carried/choose_blocks.h"
#include "layers/mixers/landmark_heads.h"
#include "layers/pass/visibility.h"

namespace quire {

namespace {

// The largest value along an axis, which is kept with one entry.
Tensor largest(const Tensor& x, int axis) {
  Tape tape(false);
  Variable best = Variable::constant(x);
  while (best.dim(axis) > 1) {
    const int64_t count = best.dim(axis);
    const int64_t half = (count + 1) / 2;
    best = maximum(tape, slice(tape, best, axis, 0, half), slice(tape, best, axis, count - half, count));
  }
  return best.value();
}

Tensor repeated(const Tensor& x, const Shape& shape) {
  const Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  ops::copy(out, x.broadcast(shape));
  return out;
}

}  // namespace

std::vector<int64_t> LandmarkHeads::blocks_before(const CarriedBlocks& carried) const {
  const bool stingy = config_.positions == BlockPositions::stingy;
  std::vector<int64_t> before;
  for (size_t row = 0; row < carried.written.size(); ++row) {
    before.push_back(stingy ? std::min(carried.written[row], config_.top_k + 1) : carried.length[row]);
  }
  return before;
}

Tensor SharedChoice::operator()(const Tensor& q, const Tensor& landmarks, const Tensor& exists,
                                const Tensor& reads) const {
  const int64_t count = landmarks.dim(1);
  const BlockChoice choice{.stored = count, .count = count, .top_k = top_k, .piece = piece};
  Tape tape(false);
  const auto exists_in = [&](const BlockPiece& part) { return exists.slice(3, part.first, part.last); };
  const auto products = [&](const BlockPiece& part) {
    return Variable::constant(block_scores(q, landmarks.slice(1, part.first, part.last), scale));
  };
  // When there are several pieces, shares come from the log of the sum over all blocks, [R, H, T, 1].
  const std::vector<BlockPiece> pieces = choice.pieces();
  Variable all;
  for (const BlockPiece& part : pieces) {
    if (compare != BlockComparison::shares || pieces.size() == 1) break;
    const Variable sum = log_sum_exp(tape, products(part), exists_in(part));
    const Variable one = reshape(tape, sum, {q.dim(0), q.dim(2), q.dim(1), 1});
    all = all.defined() ? concatenate(tape, std::vector{all, one}, 3) : one;
    all = reshape(tape, log_sum_exp(tape, all), one.value().shape());
  }
  const DType type = q.dtype(), wide = wide_type(type);
  const Tensor zero = Tensor::zeros({1, 1, 1, 1}, type, q.device());
  const Variable lowest = log(tape, Variable::constant(zero));
  const auto scores_of = [&](const BlockPiece& part) {
    Variable scores = products(part);
    if (all.defined()) {
      scores = convert(tape, exp(tape, subtract(tape, convert(tape, scores, wide), all)), type);
    } else if (compare == BlockComparison::shares) {
      scores = softmax(tape, scores, exists_in(part));
    }
    const Variable comparable = select(tape, reads, scores, lowest);
    return largest(comparable.value(), selection == BlockSelection::token ? 1 : 2);
  };
  return choose_blocks(choice, scores_of, exists_in);
}

// Returns blocks by number, where 0 is the oldest of carried.max_length: i32 [R, T, H, K]. landmarks [R, N, Hk, D] are
// at the end of each row.
Tensor LandmarkHeads::best_blocks(const Forward& f, const CarriedBlocks& carried, const Tensor& q,
                                  const Tensor& landmarks) const {
  const int64_t rows = q.dim(0), tokens = q.dim(1), count = landmarks.dim(1);
  const SharedChoice choice{config_.selection, config_.compare, scale_, std::min(config_.top_k, count)};
  const auto mask_of = [&](const char* name, const Shape& shape, const auto& kept) {
    return f.table(name, carried.length, [&] {
      std::vector<uint8_t> mask;
      for (int64_t i = 0; i < shape.numel(); ++i) mask.push_back(kept(i) ? 1 : 0);
      return Tensor::from(mask, shape, f.state.device());
    });
  };
  const Tensor exists = mask_of("landmark.exists", {rows, 1, 1, count}, [&](int64_t i) {
    return i % count >= count - carried.length[static_cast<size_t>(i / count)];
  });
  const Tensor reads = mask_of("landmark.reads", {rows, 1, tokens, 1}, [&](int64_t i) {
    return f.batch.segment[static_cast<size_t>(i)] == 0 && carried.length[static_cast<size_t>(i / tokens)] > 0;
  });
  const Tensor best = choice(q, landmarks, exists, reads);
  return repeated(best.permute(std::vector<int>{0, 2, 1, 3}), {rows, tokens, shape_.heads, choice.top_k});
}

LandmarkHeads::Chosen LandmarkHeads::choose(const Forward& f, const CarriedBlocks& carried, const Tensor& q) const {
  const int64_t rows = q.dim(0);
  const Device device = q.device();
  const bool stingy = config_.positions == BlockPositions::stingy;
  const std::vector<int64_t> before = blocks_before(carried);
  // Landmarks are rotated as seen from the current block.
  Tensor landmarks = store_->summaries(f.state, carried, 0, carried.max_length);
  if (rotation_.is_on()) {
    std::vector<int64_t> numbers{stingy ? 1 : 0};
    numbers.insert(numbers.end(), carried.length.begin(), carried.length.end());
    numbers.insert(numbers.end(), before.begin(), before.end());
    const Tensor back = f.table("landmark.blocks_back", numbers, [&] {
      std::vector<int32_t> blocks;
      for (size_t row = 0; row < carried.length.size(); ++row) {
        for (int64_t n = carried.max_length; n > 0; --n) {
          blocks.push_back(static_cast<int32_t>(stingy ? std::min(n, before[row]) : n));
        }
      }
      return Tensor::from(blocks, {rows, carried.max_length}, device);
    });
    rotation_.blocks_back(landmarks, back, stingy ? config_.top_k + 1 : carried.max_length);
  }

  const int64_t chosen_count = std::min(config_.top_k, carried.max_length);
  const Shape shape{rows, q.dim(1), shape_.heads, chosen_count};
  ops::BlockPlacing placing = placing_of(&*store_, f.state, carried);
  if (config_.selection == BlockSelection::token_and_head) {
    placing.index = Tensor::empty(shape, DType::i32, device);
    const Tensor score = Tensor::empty(shape, wide_type(q.dtype()), device);
    ops::KnnMemory memory;
    memory.keys = landmarks;
    memory.head = Tensor::zeros({rows}, DType::i32, device);
    memory.length = placing.length;
    ops::knn_search(placing.index, score, q, memory, ops::KnnSearch::exact);
    placing.first = Tensor::zeros({rows}, DType::i32, device);
  } else {
    placing.index = best_blocks(f, carried, q, landmarks);
  }
  if (const Tensor readers = carried_mask(f); readers.defined()) ops::drop_entries(placing.index, readers);
  if (stingy) placing.places = by_row(before, device);
  Chosen chosen{Tensor::empty(shape, DType::i32, device), Tensor::empty(shape, DType::i32, device), {}};
  ops::place_blocks(chosen.slot, chosen.rotation, Tensor::empty(shape, DType::i32, device), placing);
  chosen.blocks = store_->fetch(f.state, chosen.slot);
  return chosen;
}

}  // namespace quire
