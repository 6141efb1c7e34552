#include "layers/mixers/landmark_heads.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rotary.h"
#include "autograd/functions/rows.h"
#include "kernels/knn.h"
#include "layers/host_values.h"
#include "layers/visibility.h"

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

LandmarkHeads::LandmarkHeads(const Scope& scope, const LandmarkConfig& config, const HeadShape& shape,
                             Position position, const RopeConfig& rope, std::shared_ptr<PositionTables> tables,
                             Initializer context_miss)
    : name_(scope.path()),
      scope_(hash_scope(scope.path())),
      config_(config),
      cut_{.period = config.period(),
           .landmarks = true,
           .jump = config.jump,
           .controlled = config.context_miss.enabled ? config.context_miss.controlled : 0},
      rotation_(position, rope, shape.size, config.period(), std::move(tables)),
      shape_(shape),
      scale_(1.0 / std::sqrt(static_cast<double>(shape.size))) {
  if (config.context_miss.enabled) {
    context_miss_ = scope.param("context_miss", {shape.key_heads, shape.size}, context_miss);
  }
  if (config.retrieve) {
    store_.emplace(scope, BlockStoreOptions{.period = config.period(),
                                            .capacity = config.capacity,
                                            .key_heads = shape.key_heads,
                                            .size = shape.size,
                                            .value_size = shape.value_size,
                                            .place = config.place,
                                            .dtype = config.storage(),
                                            .landmarks = true});
  }
}

Variable LandmarkHeads::operator()(const Forward& f, const Variable& plain_q, const Variable& plain_k,
                                   const Variable& plain_v) const {
  Tape& tape = f.tape;
  const HeldBlocks held = store_ ? store_->held(f) : HeldBlocks{};
  BlockCut cut = cut_;
  if (!f.training) {
    cut.jump = 1;
    cut.controlled = 0;
  }
  const KeyBlocks blocks = key_blocks(f, cut, held.tail);
  const Variable q = rotation_.by_positions(tape, plain_q, blocks.query_position, blocks.positions);
  Variable k = rotation_.by_positions(tape, plain_k, blocks.query_position, blocks.positions);
  Variable v = plain_v;
  Tensor tail_keys, tail_values;
  if (blocks.before > 0) {
    std::tie(tail_keys, tail_values) = store_->tails(f.state, held);
    k = concatenate(tape, std::vector{Variable::constant(tail_keys), k}, 1);
    v = concatenate(tape, std::vector{Variable::constant(tail_values), v}, 1);
  }

  ops::BlockAttentionInputs settings;
  settings.block = blocks.block;
  settings.first = blocks.first;
  settings.landmark = blocks.landmark;
  settings.scale = scale_;
  settings.empty_blocks_count = config_.empty_blocks == EmptyBlocks::counted;
  settings.dropout = f.training ? config_.group_dropout : 0;
  settings.key = f.key;
  settings.scope = scope_;
  settings.first_row = f.batch.first_row;
  const BlockAttention free = block_attention(tape, q, k, v, settings);
  if (store_ && (held.most == 0 || config_.top_k == 0)) {
    report_blocks(f, name_, cut_.period, &*store_, held, blocks, {});
  }
  std::optional<BlockAttention> others;
  if (blocks.controlled.defined()) {
    settings.landmark = blocks.controlled;
    settings.own_block = false;
    others = block_attention(tape, q, k, v, settings);
  }
  if (held.most > 0 && config_.top_k > 0) {
    const BlockAttention read = stored(f, held, blocks, q);
    others = others ? join(tape, *others, read) : read;
  }
  Variable mixed = free.out;
  if (context_miss_.defined()) {
    mixed = controlled(f, free, others, held, q);
  } else if (others) {
    mixed = join(tape, free, *others).out;
  }
  if (store_ && f.write_state) {
    Tape idle(false);
    const Variable by_place = rotation_.by_positions(idle, Variable::constant(plain_k.value()), blocks.place,
                                                     std::max(cut_.period, blocks.positions));
    Variable all = by_place;
    if (blocks.before > 0) all = concatenate(idle, std::vector{Variable::constant(tail_keys), by_place}, 1);
    store_->write(f, held, all.value(), v.value());
  }
  return mixed;
}

std::vector<int64_t> LandmarkHeads::blocks_before(const HeldBlocks& held) const {
  const bool stingy = config_.positions == BlockPositions::stingy;
  std::vector<int64_t> before;
  for (size_t row = 0; row < held.written.size(); ++row) {
    before.push_back(stingy ? std::min(held.written[row], config_.top_k + 1) : held.length[row]);
  }
  return before;
}

// Blocks by number, 0 is the oldest of held.most: i32 [R, T, H, K]. landmarks [R, N, Hk, D] at the end of each row.
Tensor LandmarkHeads::best_blocks(const Forward& f, const HeldBlocks& held, const Tensor& q,
                                  const Tensor& landmarks) const {
  const int64_t rows = q.dim(0), tokens = q.dim(1), count = landmarks.dim(1);
  const int64_t wanted = std::min(config_.top_k, count);
  const Shape chosen{rows, tokens, shape_.heads, wanted};
  Tape tape(false);
  Variable scores = Variable::constant(block_scores(q, landmarks, scale_));
  const auto mask_of = [&](const char* name, const Shape& shape, const auto& kept) {
    return f.tables->find({hash_scope(name), held.length}, [&] {
      std::vector<uint8_t> mask;
      for (int64_t i = 0; i < shape.numel(); ++i) mask.push_back(kept(i) ? 1 : 0);
      return Tensor::from(mask, shape, f.state.device());
    });
  };
  const Tensor exists = mask_of("landmark.exists", {rows, 1, 1, count}, [&](int64_t i) {
    return i % count >= count - held.length[static_cast<size_t>(i / count)];
  });
  const Tensor reads = mask_of("landmark.reads", {rows, 1, tokens, 1}, [&](int64_t i) {
    return f.batch.segment[static_cast<size_t>(i)] == 0 && held.length[static_cast<size_t>(i / tokens)] > 0;
  });
  if (config_.softmax_first) scores = softmax(tape, scores, exists);
  const Tensor none = Tensor::zeros({1}, scores.value().dtype(), q.device());
  const Variable lowest = log(tape, Variable::constant(none));
  const Tensor comparable =
      select(tape, reads, scores, broadcast(tape, reshape(tape, lowest, {1, 1, 1, 1}), {1, 1, 1, 1})).value();
  if (config_.selection == BlockSelection::token) {
    const Tensor best = top_k(largest(comparable, 1), wanted, exists);  // [R, 1, T, K]
    return repeated(best.permute(std::vector<int>{0, 2, 1, 3}), chosen);
  }
  const Tensor best = top_k(largest(comparable, 2), wanted, exists);  // [R, H, 1, K]
  return repeated(best.permute(std::vector<int>{0, 2, 1, 3}), chosen);
}

LandmarkHeads::Chosen LandmarkHeads::choose(const Forward& f, const HeldBlocks& held, const Tensor& q) const {
  const int64_t rows = q.dim(0);
  const Device device = q.device();
  const bool stingy = config_.positions == BlockPositions::stingy;
  const std::vector<int64_t> before = blocks_before(held);
  const auto by_row = [&](const auto& value) {
    std::vector<int32_t> values;
    for (int64_t row = 0; row < rows; ++row) values.push_back(static_cast<int32_t>(value(static_cast<size_t>(row))));
    return Tensor::from(values, {rows}, device);
  };
  // Landmarks as they look from the current block.
  Tensor landmarks = store_->summaries(f.state, held);
  if (rotation_.is_on()) {
    std::vector<int64_t> numbers{stingy ? 1 : 0};
    numbers.insert(numbers.end(), held.length.begin(), held.length.end());
    numbers.insert(numbers.end(), before.begin(), before.end());
    const Tensor back = f.tables->find({hash_scope("landmark.blocks_back"), numbers}, [&] {
      std::vector<int32_t> blocks;
      for (size_t row = 0; row < held.length.size(); ++row) {
        for (int64_t n = held.most; n > 0; --n) {
          blocks.push_back(static_cast<int32_t>(stingy ? std::min(n, before[row]) : n));
        }
      }
      return Tensor::from(blocks, {rows, held.most}, device);
    });
    rotation_.blocks_back(landmarks, back, stingy ? config_.top_k + 1 : held.most);
  }

  const int64_t wanted = std::min(config_.top_k, held.most);
  const Shape shape{rows, q.dim(1), shape_.heads, wanted};
  ops::BlockPlacing placing;
  if (config_.selection == BlockSelection::token_and_head) {
    placing.index = Tensor::empty(shape, DType::i32, device);
    const Tensor score = Tensor::empty(shape, wide_type(q.dtype()), device);
    ops::KnnMemory memory;
    memory.keys = landmarks;
    memory.head = Tensor::zeros({rows}, DType::i32, device);
    memory.length = by_row([&](size_t row) { return held.length[row]; });
    ops::knn_search(placing.index, score, q, memory, ops::KnnSearch::exact);
    placing.first = Tensor::zeros({rows}, DType::i32, device);
  } else {
    placing.index = best_blocks(f, held, q, landmarks);
    placing.first = by_row([&](size_t row) { return held.most - held.length[row]; });
  }
  if (const Tensor readers = carried_mask(f); readers.defined()) ops::drop_entries(placing.index, readers);
  placing.head = store_->head(f.state);
  placing.length = by_row([&](size_t row) { return held.length[row]; });
  placing.slots = store_->slots(f.state);
  placing.stored = held.most;
  if (stingy) placing.places = by_row([&](size_t row) { return before[row]; });
  const Chosen chosen{Tensor::empty(shape, DType::i32, device), Tensor::empty(shape, DType::i32, device)};
  ops::place_blocks(chosen.slot, chosen.turn, Tensor::empty(shape, DType::i32, device), placing);
  return chosen;
}

BlockAttention LandmarkHeads::stored(const Forward& f, const HeldBlocks& held, const KeyBlocks& blocks,
                                     const Variable& q) const {
  const Chosen chosen = choose(f, held, q.value());
  ops::StoredAttentionInputs settings;
  settings.keys = store_->keys(f.state);
  settings.values = store_->values(f.state);
  settings.slot = chosen.slot;
  settings.turn = chosen.turn;
  settings.scale = scale_;
  settings.landmarks = true;
  if (rotation_.is_on()) {
    const int64_t farthest = config_.positions == BlockPositions::stingy ? config_.top_k + 1 : held.most;
    settings.table = rotation_.turns(farthest, q.value());
    settings.interleaved = rotation_.interleaved();
  }
  const BlockAttention read = stored_attention(f.tape, q, settings);
  if (f.telemetry != nullptr || f.retrieved != nullptr) {
    std::vector<BlockRead> reads;
    Tape idle(false);
    for (int64_t n = 0; n < chosen.slot.dim(3); ++n) {
      ops::StoredAttentionInputs one = settings;
      one.slot = one_of(chosen.slot, n);
      one.turn = one_of(chosen.turn, n);
      reads.push_back({stored_attention(idle, Variable::constant(q.value()), one).lse.value(), one.slot, {}});
    }
    report_blocks(f, name_, cut_.period, &*store_, held, blocks, reads);
  }
  store_->forget_pages(f.state);
  return read;
}

// The token stands before the oldest block that a query could read: at position -1 where it has nothing stored.
Variable LandmarkHeads::context_miss_logit(const Forward& f, const HeldBlocks& held, const Variable& q) const {
  Tape& tape = f.tape;
  const int64_t rows = q.dim(0), tokens = q.dim(1), key_heads = shape_.key_heads;
  std::vector<int64_t> before =
      held.length.empty() ? std::vector<int64_t>(static_cast<size_t>(rows), 0) : blocks_before(held);
  const Tensor positions = f.tables->find({hash_scope("landmark.context_miss"), before}, [&] {
    std::vector<int32_t> of_tokens;
    for (int64_t cell = 0; cell < rows * tokens; ++cell) {
      const bool goes_on = f.batch.segment[static_cast<size_t>(cell)] == 0;
      const int64_t blocks = goes_on ? before[static_cast<size_t>(cell / tokens)] : 0;
      of_tokens.push_back(static_cast<int32_t>(-1 - blocks * cut_.period));
    }
    return Tensor::from(of_tokens, {rows, tokens}, q.value().device());
  });
  const int64_t farthest = *std::max_element(before.begin(), before.end());
  const Variable& key = context_miss_;
  const Variable repeated_key =
      broadcast(tape, reshape(tape, key, {1, 1, key_heads, shape_.size}), {rows, tokens, key_heads, shape_.size});
  const Variable k = rotation_.by_positions(tape, repeated_key, positions, 0, -1 - farthest * cut_.period);
  const Variable grouped = reshape(tape, q, {rows, tokens, key_heads, shape_.heads / key_heads, shape_.size});
  const Variable products = multiply(tape, grouped, reshape(tape, k, {rows, tokens, key_heads, 1, shape_.size}));
  return reshape(tape, scale(tape, sum(tape, products, -1), scale_), {rows, tokens, shape_.heads, 1});
}

Variable LandmarkHeads::controlled(const Forward& f, const BlockAttention& free,
                                   const std::optional<BlockAttention>& others, const HeldBlocks& held,
                                   const Variable& q) const {
  Tape& tape = f.tape;
  const ContextMiss miss = quire::context_miss(tape, free, context_miss_logit(f, held, q));
  const Variable own = multiply(tape, free.out, miss.kept);
  if (!others) return own;
  Variable share = miss.share;
  if (config_.context_miss.cutoff > 0) {
    std::vector<uint8_t> reads;
    int64_t skipped = 0;
    for (const double x : values_on_host(share.value())) {
      reads.push_back(x >= config_.context_miss.cutoff ? 1 : 0);
      skipped += x >= config_.context_miss.cutoff ? 0 : 1;
    }
    if (f.telemetry != nullptr) {
      f.telemetry->emplace_back(name_ + ".skipped", static_cast<double>(skipped) / static_cast<double>(reads.size()));
    }
    share = select(tape, Tensor::from(reads, share.shape(), q.value().device()), share, {});
  }
  return add(tape, own, multiply(tape, others->out, share));
}

}  // namespace quire
