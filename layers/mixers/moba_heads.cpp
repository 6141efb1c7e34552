#include "layers/mixers/moba_heads.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// All numbers that the blocks of a pass depend on.
std::vector<int64_t> numbers_of(const CarriedBlocks& carried, std::vector<int64_t> numbers) {
  numbers.insert(numbers.end(), carried.tail.begin(), carried.tail.end());
  numbers.insert(numbers.end(), carried.length.begin(), carried.length.end());
  return numbers;
}

// Returns what queries have read, of mass [R, H, T, K] and blocks i32 [R, T, H, K].
std::vector<BlockRead> reads_of(const Tensor& mass, const Tensor& blocks, int64_t own_blocks) {
  const std::vector<int32_t> all = blocks.to_vector<int32_t>();
  std::vector<int32_t> stored, own;
  for (const int32_t block : all) {
    stored.push_back(std::max(block, -1));
    own.push_back(block < -1 ? static_cast<int32_t>((-2 - block) % own_blocks) : -1);
  }
  std::vector<BlockRead> reads = stored_reads(mass, Tensor::from(stored, blocks.shape(), blocks.device()));
  const Tensor own_blocks_read = Tensor::from(own, blocks.shape(), blocks.device());
  for (int64_t n = 0; n < blocks.dim(3); ++n) {
    reads.push_back({reads[static_cast<size_t>(n)].lse, {}, one_of(own_blocks_read, n)});
  }
  return reads;
}

}  // namespace

MobaHeads::MobaHeads(const Scope& scope, const MobaConfig& config, const HeadShape& shape, Position position,
                     const RopeConfig& rope, std::shared_ptr<PositionTables> tables)
    : name_(scope.path()),
      scope_(hash_scope(scope.path())),
      config_(config),
      shape_(shape),
      rotation_(position, rope, shape.size, config.block, std::move(tables)),
      scale_(rotation_.logit_factor() / std::sqrt(static_cast<double>(shape.size))) {
  if (!config_.carries()) return;
  BlockLogOptions log =
      log_of_tokens(config_.block, config_.carry.length, shape.key_heads, shape.size, shape.value_size);
  log.place = config_.carry.place;
  log.dtype = stored_type(config_.carry.dtype);
  store_.emplace(scope, log);
}

Variable MobaHeads::operator()(const Forward& f, const Variable& queries, const Variable& keys,
                               const Variable& values) const {
  Tape& tape = f.tape;
  const CarriedBlocks carried = store_ ? store_->carried(f) : CarriedBlocks{};
  const KeyBlocks blocks = key_blocks(f, {.period = config_.block}, carried.tail);
  const Variable q = rotation_.by_positions(tape, queries, blocks.query_position, blocks.positions);
  std::vector<Variable> all{rotation_.by_positions(tape, keys, blocks.query_position, blocks.positions), values};
  if (store_) all = store_->behind_tails(tape, f.state, carried, std::move(all));
  const Variable &k = all[0], &v = all[1];

  const OwnBlocks own = own_blocks(f, carried, blocks);
  const Chosen chosen = choose(f, carried, blocks, own.count, q.value(), k.value());
  ops::BlockAttentionInputs settings;
  settings.block = blocks.block;
  settings.first = own.first;
  settings.scale = scale_;
  BlockAttention mixed = block_attention(tape, q, k, v, settings);
  const bool observed = f.wants_telemetry() || f.wants_retrievals();
  std::vector<BlockRead> reads;
  if (chosen.block.dim(3) > 0) {
    ops::ListedAttentionInputs listed;
    await_fetched(f.state.device());
    const bool any = chosen.stored.slot.defined();
    const auto none = [&](const Variable& of) {
      return Tensor::empty({0, config_.block, of.dim(2), of.dim(3)}, of.value().dtype(), of.value().device());
    };
    listed.keys = none(k), listed.values = none(v);
    if (any) chosen.stored.give_blocks(listed);
    listed.own_blocks = own.spans;
    listed.blocks = any ? chosen.stored.slot : chosen.block;
    listed.rotation = chosen.rotation;
    listed.scale = scale_;
    listed.interleaved = rotation_.interleaved();
    if (any && rotation_.is_on()) listed.table = rotation_.rotation_table(carried.max_length, q.value());
    Tensor mass;
    const BlockAttention earlier = listed_attention(tape, q, {{}, {}, k, v, {}}, listed, observed ? &mass : nullptr);
    mixed = join(tape, mixed, earlier);
    if (observed) reads = reads_of(mass, chosen.block, own.count);
    if (store_) store_->forget_pages(f.state);
  }
  if (observed) {
    report_blocks(f, name_, config_.block, store_ ? &*store_ : nullptr, carried, blocks, reads,
                  {mixed.lse.value(), {}});
  }
  if (store_ && f.write_state) {
    Tape unrecorded(false);
    const Variable by_place =
        rotation_.by_positions(unrecorded, Variable::constant(keys.value()), blocks.place, config_.block);
    store_->append_tokens(f, carried, by_place.value(), values.value());
  }
  return mixed.out;
}

MobaHeads::OwnBlocks MobaHeads::own_blocks(const Forward& f, const CarriedBlocks& carried,
                                           const KeyBlocks& blocks) const {
  const std::vector<int32_t> block = blocks.block_on_host.to_vector<int32_t>();
  const int64_t rows = f.batch.rows, count = static_cast<int64_t>(block.size()) / rows, length = f.batch.length;
  OwnBlocks own;
  own.count = *std::max_element(block.begin(), block.end()) + 1;
  const std::vector<int64_t> numbers = numbers_of(carried, {config_.block});
  own.spans = f.table("moba.spans", numbers, [&] {
    std::vector<int32_t> spans(static_cast<size_t>(2 * rows * own.count), 0);
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] < 0) continue;
      int32_t* const span = spans.data() + 2 * (static_cast<int64_t>(i) / count * own.count + block[i]);
      if (span[1]++ == 0) span[0] = static_cast<int32_t>(i);
    }
    return Tensor::from(spans, {rows * own.count, 2}, f.state.device());
  });
  own.first = f.table("moba.first", numbers, [&] {
    std::vector<int32_t> first = blocks.first_on_host.to_vector<int32_t>();
    for (size_t i = 0; i < first.size(); ++i) {
      const auto cell = static_cast<int64_t>(i);
      first[i] = std::max(first[i], block[static_cast<size_t>(cell / length * count + blocks.before + cell % length)]);
    }
    return Tensor::from(first, {rows, length}, f.state.device());
  });
  return own;
}

Tensor MobaHeads::mean_keys(const Forward& f, const CarriedBlocks& carried, const KeyBlocks& blocks,
                            const Tensor& keys) const {
  const int64_t rows = keys.dim(0), count = keys.dim(1), period = config_.block;
  const std::vector<int32_t> block = blocks.block_on_host.to_vector<int32_t>();
  const int64_t max_blocks = *std::max_element(block.begin(), block.end()) + 1;
  // The keys of each block, and how many it has.
  std::vector<int32_t> members(static_cast<size_t>(rows * max_blocks * period), -1);
  std::vector<int64_t> sizes(static_cast<size_t>(rows * max_blocks), 0);
  for (int64_t i = 0; i < rows * count; ++i) {
    const int32_t number = block[static_cast<size_t>(i)];
    if (number < 0) continue;
    const int64_t of = i / count * max_blocks + number;
    members[static_cast<size_t>(of * period + sizes[static_cast<size_t>(of)]++)] = static_cast<int32_t>(i % count);
  }
  std::vector<double> inverse;
  for (const int64_t size : sizes) inverse.push_back(size == 0 ? 0 : 1.0 / static_cast<double>(size));
  const std::vector<int64_t> numbers = numbers_of(carried, {period});
  const Tensor index = f.table("moba.members", numbers, [&] {
    return Tensor::from(members, {rows, max_blocks * period}, f.state.device());
  });
  const Tensor factor = f.table("moba.inverse_sizes", numbers, [&] {
    return tensor_of(inverse, {rows, max_blocks, 1, 1}, wide_type(keys.dtype()), f.state.device());
  });
  Tape tape(false);
  const Variable of_blocks = sum(tape, Variable::constant(blocks_at(keys, index, period)), 2);
  return multiply(tape, of_blocks, convert(tape, Variable::constant(factor), keys.dtype())).value();
}

Tensor MobaHeads::candidates(const Forward& f, const CarriedBlocks& carried, const KeyBlocks& blocks,
                             const BlockPiece& piece) const {
  const Batch& batch = f.batch;
  const Shape shape{batch.rows, batch.length, 1, piece.size()};
  const int64_t stored = carried.max_length;
  const int64_t farthest = config_.farthest().value_or(stored + batch.length);
  const auto made = [&] {
    if (f.state.device() == kMeta) return Tensor::empty(shape, DType::u8, kMeta);  // a plan reads no values
    const int64_t keys = blocks.before + batch.length;
    const std::vector<int32_t> block = blocks.block_on_host.to_vector<int32_t>();
    const std::vector<int32_t> first = blocks.first_on_host.to_vector<int32_t>();
    std::vector<uint8_t> mask(static_cast<size_t>(shape.numel()), 0);
    for (int64_t cell = 0; cell < batch.rows * batch.length; ++cell) {
      const int64_t row = cell / batch.length;
      const int64_t own = block[static_cast<size_t>(row * keys + blocks.before + cell % batch.length)];
      if (own < 0) continue;
      // Candidates are neighbours. Only the row's first document goes on from what is stored.
      int64_t oldest = stored + first[static_cast<size_t>(cell)];
      if (oldest == stored && stored > 0) oldest -= carried.length[static_cast<size_t>(row)];
      const int64_t begin = std::max({piece.first, oldest, stored + own - farthest});
      const int64_t end = std::min(piece.last, stored + own);
      if (begin < end) std::fill_n(mask.begin() + cell * piece.size() + begin - piece.first, end - begin, uint8_t{1});
    }
    return Tensor::from(mask, shape, f.state.device());
  };
  // All layers have the same candidates.
  if (piece.last < stored || piece.first > 0) return made();
  return f.table("moba.candidates", numbers_of(carried, {farthest, config_.block}), made);
}

Tensor MobaHeads::scores(const Forward& f, const CarriedBlocks& carried, const Tensor& q, const Tensor& own,
                         const BlockPiece& piece) const {
  Tape tape(false);
  std::vector<Variable> parts;
  const int64_t last = std::min(piece.last, carried.max_length);
  if (piece.first < last) {
    const Tensor stored = store_->summaries(f.state, carried, piece.first, last);
    std::vector<int32_t> back;
    for (int64_t i = 0; i < q.dim(0) * (last - piece.first); ++i) {
      back.push_back(static_cast<int32_t>(carried.max_length - piece.first - i % (last - piece.first)));
    }
    rotation_.blocks_back(stored, Tensor::from(back, {q.dim(0), last - piece.first}, q.device()), carried.max_length);
    parts.push_back(Variable::constant(stored));
  }
  if (piece.last > carried.max_length) parts.push_back(Variable::constant(own));
  const Tensor keys = parts.size() == 1 ? parts.front().value() : concatenate(tape, parts, 1).value();
  return permute(tape, Variable::constant(block_scores(q, keys, scale_)), {0, 2, 1, 3}).value();
}

MobaHeads::Chosen MobaHeads::choose(const Forward& f, const CarriedBlocks& carried, const KeyBlocks& blocks,
                                    int64_t own_blocks, const Tensor& q, const Tensor& keys) const {
  const int64_t rows = q.dim(0);
  const Device device = q.device();
  const Tensor own = mean_keys(f, carried, blocks, keys);
  const int64_t count = carried.max_length + own.dim(1);
  const int64_t chosen_count = std::min(config_.top_k - 1, count);
  const Shape shape{rows, q.dim(1), shape_.heads, chosen_count};
  ops::BlockPlacing placing = placing_of(store_ ? &*store_ : nullptr, f.state, carried);
  placing.index = f.selection(scope_, [&] {
    if (chosen_count == 0) return Tensor::empty(shape, DType::i32, device);
    return choose_blocks(
        {.stored = carried.max_length, .count = count, .top_k = chosen_count},
        [&](const BlockPiece& piece) { return scores(f, carried, q, own, piece); },
        [&](const BlockPiece& piece) { return candidates(f, carried, blocks, piece); });
  });
  placing.own_blocks = own_blocks;
  Chosen chosen{Tensor::empty(shape, DType::i32, device), Tensor::empty(shape, DType::i32, device), {}};
  ops::place_blocks(chosen.block, chosen.rotation, Tensor::empty(shape, DType::i32, device), placing);
  if (carried.max_length == 0 || chosen_count == 0) return chosen;
  chosen.stored = store_->fetch(f.state, chosen.block);
  return chosen;
}

}  // namespace quire
