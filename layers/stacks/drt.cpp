#include "layers/stacks/drt.h"

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "layers/parameters/scope.h"

namespace quire {

int64_t lower_layers(const DrtConfig& config, const ModelConfig& model) {
  return config.lower_layers.value_or(model.layers / 2);
}

DrtStack::DrtStack(const Scope& scope, const Place& place)
    : config_(place.options.get<DrtConfig>()),
      width_(place.model.width),
      key_heads_(config_.key_heads.value_or(place.model.heads)),
      head_size_(place.model.size_of_head()),
      lower_(make_blocks(scope.root(), place.model, 0, lower_layers(config_, place.model))),
      encoder_(scope.child("encoder"), place.model, config_.encoder_layers, config_.positions()),
      key_(scope.child("key"), width_, key_heads_ * head_size_, Initialization(place.model).matrix(width_)),
      value_(scope.child("value"), width_, key_heads_ * head_size_, Initialization(place.model).matrix(width_)),
      values_{scope.leaves_value("keys"), scope.leaves_value("values"), scope.leaves_value("list")} {
  const ModelConfig& model = place.model;
  if (config_.landmark_projection) {
    landmark_.emplace(scope.child("landmark"), width_, width_, Initialization(model).matrix(width_));
  }
  if (config_.carry.in_training) {
    const Shape entry{config_.chunk, key_heads_, head_size_};
    // The newest chunk is never read by the list that its own landmark makes, so one more is kept.
    store_.emplace(scope, BlockLogOptions{.period = config_.positions(),
                                          .capacity = config_.carry.length + 1,
                                          .begun = {{"states", {width_}}},
                                          .name = "chunks",
                                          .keys = entry,
                                          .values = entry,
                                          .summary = {"landmarks", {width_}},
                                          .place = config_.carry.place,
                                          .dtype = stored_type(config_.carry.dtype)});
  }
  if (config_.scores == ChunkScores::bm25) {
    words_.emplace(scope, config_);
  }
  if (config_.scores == ChunkScores::file) file_.emplace(*config_.scores_file);
  const int64_t lower = lower_layers(config_, model);
  const int64_t of_group = (model.layers - lower) / config_.groups;
  for (int64_t g = 0; g < config_.groups; ++g) {
    const Scope group = scope.child("groups", g);
    Group made;
    made.retriever = std::make_unique<ChunkRetriever>(group, model, config_, g);
    made.lists = {group.leaves_value("own"),        group.leaves_value("weight"), group.leaves_value("slot"),
                  group.leaves_value("keys"),       group.leaves_value("values"), group.leaves_value("key_scale"),
                  group.leaves_value("value_scale")};
    const auto reader = [&](const Scope& part, const ModelConfig& seen) {
      return std::make_unique<ChunkReader>(part, seen, config_, scope.path(), g);
    };
    const int64_t begin = lower + g * of_group;
    made.blocks = make_blocks(scope.root(), model, begin, begin + of_group, {{"mlp", Recompute::mlp, reader}});
    groups_.push_back(std::move(made));
  }
}

Variable DrtStack::chunks(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried,
                          const Variable& x) const {
  Tape& tape = f.tape;
  const int64_t positions = config_.positions(), rows = x.dim(0);
  const Shape shape{rows * cut.max_chunks, positions, width_};
  if (cut.aligned) return reshape(tape, slice(tape, x, 1, 0, cut.max_chunks * positions), shape);
  const Variable lines = store_ ? store_->behind_tails(tape, f.state, carried, {x}).front() : x;
  return reshape(tape, gather_rows(tape, lines, cut.lines), shape);
}

Variable DrtStack::operator()(const Forward& f, const Variable& x) const {
  Tape& tape = f.tape;
  const int64_t rows = x.dim(0);
  Variable y = x;
  for (const std::unique_ptr<Block>& block : lower_) y = (*block)(f, y);
  hooks_.see("lower", y);
  const CarriedBlocks carried = store_ ? store_->carried(f) : CarriedBlocks{};
  const ChunkCut cut = cut_chunks(f, config_.positions(), carried, store_.has_value());

  Variable landmarks, keys, values;
  if (cut.max_chunks > 0) {
    const Variable encoded = encoder_(f, chunks(f, cut, carried, y));
    landmarks = config_.landmark == ChunkLandmark::mean ? mean(tape, encoded, 1)
                                                        : slice(tape, encoded, 1, config_.chunk, config_.chunk + 1);
    landmarks = reshape(tape, landmarks, {rows, cut.max_chunks, width_});
    if (landmark_) landmarks = (*landmark_)(tape, landmarks);
    const Variable tokens = slice(tape, encoded, 1, 0, config_.chunk);
    const Shape heads{rows * cut.max_chunks, config_.chunk, key_heads_, head_size_};
    keys = reshape(tape, key_(tape, tokens), heads);
    values = reshape(tape, value_(tape, tokens), heads);
    hooks_.see("encoded", encoded);
    hooks_.see("keys", keys);
    hooks_.see("values", values);
  }
  if (store_ && f.write_state) {
    AddedBlocks added{{}, cut.of_last};
    for (size_t row = 0; row < cut.whole.size(); ++row) {
      added.first.push_back(static_cast<int64_t>(cut.whole[row].size()) - cut.of_last[row]);
    }
    store_->append_begun(f.state, y.value());
    store_->append_blocks(f.state, added, keys.value(), values.value(), landmarks.value());
  }
  f.leave_value(values_.keys, keys);
  f.leave_value(values_.values, values);
  f.leave_value(values_.list, Variable::constant(cut.list));
  GivenScores given;
  const DType wide = wide_type(y.value().dtype());
  if (words_) given.of = words_->scores(f, cut, carried, wide);
  if (file_) given = file_->scores(f, cut, carried, wide);
  std::vector<ChunkLists> read;  // by group
  for (const Group& group : groups_) {
    read.push_back((*group.retriever)(f, y, cut, carried, landmarks, given, store_ ? &*store_ : nullptr, read, hooks_));
    const ChunkLists& lists = read.back();
    f.leave_value(group.lists.own, Variable::constant(lists.own));
    f.leave_value(group.lists.weight, lists.weight);
    ops::ListedAttentionInputs stored;
    if (carried.max_length > 0) lists.stored.give_blocks(stored);
    const auto leave = [&](ValueId id, const Tensor& tensor) {
      f.leave_value(id, tensor.defined() ? Variable::constant(tensor) : Variable());
    };
    leave(group.lists.slot, lists.stored.slot);
    leave(group.lists.keys, stored.keys), leave(group.lists.values, stored.values);
    leave(group.lists.key_scale, stored.key_scale), leave(group.lists.value_scale, stored.value_scale);
    for (const std::unique_ptr<Block>& block : group.blocks) y = (*block)(f, y);
  }
  if (store_) store_->forget_pages(f.state);
  return y;
}

}  // namespace quire
