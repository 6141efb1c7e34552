#include "layers/mixers/local_tail.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/rotary.h"
#include "autograd/functions/rows.h"
#include "layers/position/rope_frequencies.h"

namespace quire {

LocalTail::LocalTail(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables, int64_t length)
    : random_scope_(hash_scope(scope.path() + ".dropout")),
      shape_(HeadShape::of(place.model)),
      position_(place.layer.position),
      frequencies_(rope_frequencies(position_.rope, position_.rope.dims.value_or(shape_.size))),
      dropout_(place.model.dropout.attention),
      length_(length),
      tables_(std::move(tables)),
      position_terms_(scope, place.model, place.layer, tables_) {
  const LogGroupId tail = scope.state_logs("tail", length, {.waits = true});
  keys_ = scope.state_log(tail, "keys", {shape_.key_heads, shape_.size});
  values_ = scope.state_log(tail, "values", {shape_.key_heads, shape_.value_size});
}

CarriedTokens LocalTail::carried(const Forward& f, const std::function<int64_t(int64_t position)>& needed,
                                 int64_t slots) const {
  CarriedTokens all;
  all.before = slots;
  std::vector<int64_t> first = f.state.lengths(keys_.group), count(first.size(), 0);
  for (const Segment& segment : f.state.segments()) {
    const int64_t position = f.batch.position[static_cast<size_t>(f.batch.at(segment.row, segment.begin))];
    const int64_t known = segment.carried ? first[static_cast<size_t>(segment.row)] : 0;
    const int64_t kept = std::min(known, needed(position));
    all.position.push_back(position);
    all.kept.push_back(kept);
    all.before = std::max(all.before, kept);
    if (segment.carried) count[static_cast<size_t>(segment.row)] = kept;
  }
  // Random numbers of attention dropout depend on the number of slots, which must not depend on the rows of the pass.
  if (f.training && dropout_ > 0) all.before = length_;
  if (all.before == 0) return all;
  for (size_t row = 0; row < first.size(); ++row) first[row] -= count[row];
  all.k = Variable::constant(f.state.gather(keys_, all.before, first, count));
  all.v = Variable::constant(f.state.gather(values_, all.before, first, count));
  return all;
}

void LocalTail::keep(const Forward& f, const Variable& k, const Variable& v) const {
  const int64_t rows = k.dim(0), length = k.dim(1), kept = std::min(length, length_);
  std::vector<int64_t> first(static_cast<size_t>(rows), 0), count;
  std::vector<int32_t> places(static_cast<size_t>(rows * kept), -1);
  for (int64_t row = 0; row < rows; ++row) {
    const Segment segment = f.state.last_segment(row);
    count.push_back(std::min(segment.count, kept));
    for (int64_t n = 0; n < count.back(); ++n) {
      places[static_cast<size_t>(row * kept + n)] =
          static_cast<int32_t>(segment.begin + segment.count - count.back() + n);
    }
  }
  const Tensor index = Tensor::from(places, {rows, kept}, f.state.device());
  Tape idle(false);
  for (const auto& [log, x] : {std::pair{keys_, &k}, std::pair{values_, &v}}) {
    const Variable lines = Variable::constant(x->value().reshape({rows, length, x->dim(2) * x->dim(3)}));
    const Tensor tail = gather_rows(idle, lines, index).value();
    f.state.append(log, tail.reshape({rows, kept, x->dim(2), x->dim(3)}), first, count);
  }
}

Tensor LocalTail::first_visible(const Forward& f, const CarriedTokens& carried, const Sight& sight) const {
  std::vector<int64_t> numbers = sight.numbers;
  numbers.insert(numbers.end(), carried.position.begin(), carried.position.end());
  numbers.insert(numbers.end(), carried.kept.begin(), carried.kept.end());
  return f.table(sight.name, numbers, [&] {
    const Batch& batch = f.batch;
    std::vector<int32_t> first(static_cast<size_t>(batch.rows * batch.length), static_cast<int32_t>(batch.length + 1));
    const std::vector<Segment> segments = f.state.segments();
    for (size_t s = 0; s < segments.size(); ++s) {
      const Segment& segment = segments[s];
      for (int64_t n = 0; n < segment.count; ++n) {
        const int64_t seen = sight.back(carried.position[s] + n);
        const int64_t back = sight.mask_empty ? std::min(seen, n + carried.kept[s]) : seen;
        const int64_t t = segment.begin + n;
        first[static_cast<size_t>(batch.at(segment.row, t))] = static_cast<int32_t>(t - back);
      }
    }
    return Tensor::from(first, {batch.rows, batch.length}, f.state.device());
  });
}

Variable LocalTail::attend(const Forward& f, const CarriedTokens& carried, const Variable& q, const Variable& k,
                           const Variable& v, const Sight& sight) const {
  Tape& tape = f.tape;
  const Device device = q.value().device();
  const bool scaled = sight.scale.defined();
  AttentionVariables x{scaled ? scale_heads(tape, q, sight.scale) : q, k, v, carried.k, carried.v, {}, {}, {}, {}};
  ops::AttentionInputs settings;
  settings.first_visible = sight.visible.defined() ? sight.visible : first_visible(f, carried, sight);
  settings.attend_self = sight.attend_self;
  settings.scale = rope_logit_factor(position_) / (scaled ? 1.0 : std::sqrt(static_cast<double>(shape_.size)));
  settings.dropout = f.training ? dropout_ : 0;
  settings.key = f.key;
  settings.scope = random_scope_;
  settings.first_row = f.batch.first_row;
  if (carried.before > 0)
    settings.cache_head = Tensor::zeros({q.dim(0)}, DType::i32, device);  // newest in the last slot
  position_terms_.add(f, x, std::min(q.dim(1) + carried.before, sight.reach));
  if (scaled && x.bias.defined()) {
    const Variable bias = reshape(tape, x.bias, {1, x.bias.dim(0), x.bias.dim(1)});
    x.bias = reshape(tape, scale_heads(tape, bias, sight.scale), x.bias.shape());
  }
  if (position_.kind == Position::rope) {
    ops::RotaryInputs rotation;
    rotation.table = tables_->rotary(carried.before, q.dim(1), frequencies_, wide_type(q.value().dtype()), device);
    rotation.origin = carried.before;
    rotation.interleaved = position_.rope.layout == RopeLayout::interleaved;
    x.q = rotary(tape, x.q, rotation);
    x.k = rotary(tape, x.k, rotation);
    if (carried.before > 0) {
      rotation.head = settings.cache_head;
      x.cache_k = rotary(tape, x.cache_k, rotation);
    }
  }
  return attention(tape, x, settings);
}

}  // namespace quire
