#include "layers/mixers/landmark_heads.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "layers/pass/host_values.h"

namespace quire {

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
      scale_(rotation_.logit_factor() / std::sqrt(static_cast<double>(shape.size))) {
  if (config.context_miss.enabled) {
    context_miss_ = scope.param("context_miss", {shape.key_heads, shape.size}, context_miss);
  }
  if (config.carry.in_training) {
    BlockLogOptions log =
        log_of_tokens(config.period(), config.carry.length, shape.key_heads, shape.size, shape.value_size);
    log.place = config.carry.place;
    log.dtype = stored_type(config.carry.dtype);
    log.landmarks = true;
    store_.emplace(scope, log);
  }
}

Variable LandmarkHeads::operator()(const Forward& f, const Variable& queries, const Variable& keys,
                                   const Variable& values) const {
  Tape& tape = f.tape;
  const CarriedBlocks carried = store_ ? store_->carried(f) : CarriedBlocks{};
  BlockCut cut = cut_;
  if (!f.training) {
    cut.jump = 1;
    cut.controlled = 0;
  }
  const KeyBlocks blocks = key_blocks(f, cut, carried.tail);
  const Variable q = rotation_.by_positions(tape, queries, blocks.query_position, blocks.positions);
  std::vector<Variable> all{rotation_.by_positions(tape, keys, blocks.query_position, blocks.positions), values};
  if (store_) all = store_->behind_tails(tape, f.state, carried, std::move(all));
  const Variable &k = all[0], &v = all[1];

  ops::BlockAttentionInputs settings;
  settings.block = blocks.block;
  settings.first = blocks.first;
  settings.landmark = blocks.marks;
  settings.scale = scale_;
  settings.grouped = !config_.ignore_landmarks;
  settings.empty_blocks_count = config_.empty_blocks == EmptyBlocks::counted;
  settings.dropout = f.training ? config_.group_dropout : 0;
  settings.key = f.key;
  settings.scope = scope_;
  settings.first_row = f.batch.first_row;
  std::optional<Chosen> chosen;  // early, since its blocks may have to come from host memory
  if (carried.max_length > 0 && config_.top_k > 0) chosen = choose(f, carried, q.value());
  const BlockAttention free = block_attention(tape, q, k, v, settings);
  std::optional<BlockAttention> others;
  if (blocks.controlled.defined()) {
    settings.landmark = blocks.controlled;
    settings.own_block = false;
    others = block_attention(tape, q, k, v, settings);
  }
  std::vector<BlockRead> reads;
  if (chosen) {
    const BlockAttention read = stored(f, carried, q, *chosen, reads);
    others = others ? join(tape, *others, read) : read;
  }
  Variable mixed = free.out;
  GateSum of_reads;
  if (others) of_reads.lse = others->lse.value();
  if (context_miss_.defined()) {
    mixed = controlled(f, free, others, carried, q, of_reads.share);
  } else if (others) {
    const BlockAttention both = join(tape, free, *others);
    mixed = both.out;
    of_reads.lse = both.lse.value();
  }
  if (store_) report_blocks(f, name_, cut_.period, &*store_, carried, blocks, reads, of_reads);
  if (store_ && f.write_state) {
    Tape unrecorded(false);
    const Variable by_place =
        rotation_.by_positions(unrecorded, Variable::constant(keys.value()), blocks.place, cut_.period);
    store_->append_tokens(f, carried, by_place.value(), values.value());
  }
  return mixed;
}

BlockAttention LandmarkHeads::stored(const Forward& f, const CarriedBlocks& carried, const Variable& q,
                                     const Chosen& chosen, std::vector<BlockRead>& reads) const {
  await_fetched(f.state.device());
  ops::ListedAttentionInputs settings;
  chosen.blocks.give_blocks(settings);
  settings.blocks = chosen.blocks.slot;
  settings.rotation = chosen.rotation;
  settings.scale = scale_;
  settings.landmarks = true;
  if (rotation_.is_on()) {
    const int64_t farthest = config_.positions == BlockPositions::stingy ? config_.top_k + 1 : carried.max_length;
    settings.table = rotation_.rotation_table(farthest, q.value());
    settings.interleaved = rotation_.interleaved();
  }
  const bool observed = f.wants_telemetry() || f.wants_retrievals();
  Tensor mass;
  const BlockAttention read = listed_attention(f.tape, q, settings, observed ? &mass : nullptr);
  if (observed) reads = stored_reads(mass, chosen.slot);
  store_->forget_pages(f.state);
  return read;
}

// The token stands before the oldest block that a query could read: at position -1 where it has nothing stored.
Variable LandmarkHeads::context_miss_logit(const Forward& f, const CarriedBlocks& carried, const Variable& q) const {
  Tape& tape = f.tape;
  const int64_t rows = q.dim(0), tokens = q.dim(1), key_heads = shape_.key_heads;
  std::vector<int64_t> before =
      carried.length.empty() ? std::vector<int64_t>(static_cast<size_t>(rows), 0) : blocks_before(carried);
  const Tensor positions = f.table("landmark.context_miss", before, [&] {
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
                                   const std::optional<BlockAttention>& others, const CarriedBlocks& carried,
                                   const Variable& q, Tensor& read_share) const {
  Tape& tape = f.tape;
  const ContextMiss miss = quire::context_miss(tape, free, context_miss_logit(f, carried, q));
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
    if (f.wants_telemetry()) {
      f.add_telemetry(name_ + ".skipped", static_cast<double>(skipped) / static_cast<double>(reads.size()));
    }
    share = select(tape, Tensor::from(reads, share.shape(), q.value().device()), share, {});
  }
  read_share = share.value();
  return add(tape, own, multiply(tape, others->out, share));
}

}  // namespace quire
