#include "layers/mixers/hils_layer.h"

#include <bit>
#include <cmath>
#include <utility>

#include "layers/position/rope_frequencies.h"

namespace quire {

namespace {

HilsShape shape_of(const ModelConfig& model) {
  return {model.heads, model.heads_of_keys(), model.size_of_head(), model.size_of_head()};
}

BlockLogOptions log_of(const HilsConfig& config, const HilsShape& shape) {
  BlockLogOptions log = log_of_tokens(config.chunk, config.capacity(), shape.key_heads, shape.size, shape.value_size);
  log.landmarks = true;
  if (config.window_only) return log;
  log.place = config.carry.place;
  log.dtype = stored_type(config.carry.dtype);
  return log;
}

}  // namespace

HilsLayer::HilsLayer(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables)
    : name_(scope.path()),
      scope_(hash_scope(scope.path())),
      config_(place.options.get<HilsConfig>()),
      shape_(shape_of(place.model)),
      interleaved_(place.layer.position.rope.layout == RopeLayout::interleaved),
      scale_(rope_logit_factor(place.layer.position) / std::sqrt(static_cast<double>(shape_.size))),
      position_tables_(std::move(tables)),
      out_(scope.child("out"), shape_.heads * shape_.value_size, place.model.width,
           Initialization(place.model).residual(shape_.heads * shape_.value_size)),
      log_(scope, log_of(config_, shape_)) {
  const RopeConfig& rope = place.layer.position.rope;
  if (place.layer.position.kind == Position::rope) {
    frequencies_ = hils_frequencies(rope_frequencies(rope, rope.dims.value_or(shape_.size)), config_.rope_length,
                                    config_.rope_turns);
  }
  declare_weights(scope, place.model);
  if (!config_.summarises()) return;
  const LogGroupId group = scope.state_logs("summaries", config_.capacity(), {.grain = config_.chunk, .waits = true});
  summaries_ = scope.state_log(group, "keys", {shape_.heads, shape_.size}, wide_type(scope.dtype()));
  biases_ = scope.state_log(group, "biases", {shape_.heads}, wide_type(scope.dtype()));
}

void HilsLayer::declare_weights(const Scope& scope, const ModelConfig& model) {
  const Initialization initial(model);
  const int64_t inner = shape_.heads * shape_.size, key_inner = shape_.key_heads * shape_.size;
  const auto matrix = [&](const char* name, int64_t out, int64_t in) {
    return scope.child(name).matrix("weight", out, in, initial.matrix(in));
  };
  const auto gain = [&](const char* name, int64_t all) {
    return scope.child(name).param("weight", {config_.norm == HilsNorm::all ? all : shape_.size},
                                   Initializer::constant(1));
  };
  parameters_.query = matrix("query", inner, model.width);
  parameters_.key = matrix("key", key_inner, model.width);
  parameters_.value = matrix("value", shape_.key_heads * shape_.value_size, model.width);
  parameters_.query_gain = gain("query_norm", inner);
  parameters_.key_gain = gain("key_norm", key_inner);
  if (config_.has_score_query()) {
    if (config_.score_query == HilsScoreQuery::full) {
      parameters_.score = matrix("score", inner, model.width);
    } else {
      const int64_t rank = config_.rank.value_or(shape_.size);
      parameters_.score_down = matrix("score_down", rank, model.width);
      parameters_.score_up = matrix("score_up", inner, rank);
    }
    parameters_.score_gain = gain("score_norm", inner);
  }
  if (config_.has_shared_query()) {
    parameters_.landmark_query =
        scope.param("landmark_query", {shape_.heads, shape_.size}, initial.matrix(shape_.size));
  }
}

HilsWeights HilsLayer::weights() const {
  const HilsWeightsOf<Parameter>& p = parameters_;
  return {p.query,      p.key,      p.value, p.query_gain, p.key_gain,
          p.score_down, p.score_up, p.score, p.score_gain, p.landmark_query};
}

HilsChunks HilsLayer::chunks_of(const Forward& f, const CarriedBlocks& carried) const {
  std::vector<HilsSpan> spans;
  for (const Segment& segment : f.state.segments()) {
    HilsSpan span{segment.row, segment.begin, segment.count,
                  f.batch.position[static_cast<size_t>(f.batch.at(segment.row, segment.begin))]};
    if (segment.carried) {
      span.stored = carried.length[static_cast<size_t>(segment.row)];
      span.tail = carried.tail[static_cast<size_t>(segment.row)];
    }
    spans.push_back(span);
  }
  return {config_, f.batch.rows, f.batch.length, std::move(spans)};
}

HilsRotation HilsLayer::rotation(int64_t positions, const Tensor& like, int64_t step) const {
  if (frequencies_.empty()) return {};
  // Few sizes occur while documents grow.
  const auto entries = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(positions)));
  return {position_tables_->rotary(0, entries, frequencies_, wide_type(like.dtype()), like.device(), step),
          interleaved_};
}

Variable HilsLayer::operator()(const Forward& f, const PartInput& input) const {
  Tape& tape = f.tape;
  const Variable z = input.normalised(tape);
  const CarriedBlocks carried = log_.carried(f);
  const HilsChunks chunks = chunks_of(f, carried);
  std::vector<int64_t> numbers = config_.numbers();
  numbers.push_back(shape_.key_heads);
  for (const HilsSpan& span : chunks.spans()) numbers.insert(numbers.end(), {span.stored, span.tail});
  const HilsTables tables =
      chunks.tables(f.state.device(), shape_.key_heads,
                    [&](const std::string& name, const auto& make) { return f.table("hils." + name, numbers, make); });
  const HilsHeads heads =
      hils_heads(tape, config_, shape_, weights(), z, tables, rotation(tables.positions, z.value()));
  HilsInput in;
  in.q = heads.q, in.score_q = heads.score_q, in.shared = heads.shared;
  std::vector<Variable> behind = log_.behind_tails(tape, f.state, carried, {heads.k, heads.v});
  in.k = std::move(behind[0]), in.v = std::move(behind[1]);
  in.scale = scale_;
  in.choose = [&](const auto& make) { return f.selection(scope_, make); };
  read_state(f, chunks, tables, in);
  const HilsMix mix = hils_mix(tape, config_, shape_, tables, in);
  if (f.wants_telemetry() || f.wants_retrievals()) report(f, chunks, tables, carried, mix);
  if (f.write_state) write_state(f, chunks, tables, carried, heads, mix);
  log_.forget_pages(f.state);
  const Shape flat{tables.rows, tables.length, shape_.heads * shape_.value_size};
  return out_(tape, reshape(tape, mix.out, flat), input.residual);
}

}  // namespace quire
