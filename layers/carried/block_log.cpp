#include "layers/carried/block_log.h"

#include <algorithm>

#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "kernels/axis.h"
#include "kernels/elementwise.h"
#include "layers/state/state_tensors.h"

namespace quire {

Tensor blocks_at(const Tensor& lines, const Tensor& index, int64_t length) {
  Tape tape(false);
  const int64_t rows = lines.dim(0), heads = lines.dim(2), size = lines.dim(3);
  const Variable found =
      gather_rows(tape, Variable::constant(lines.reshape({rows, lines.dim(1), heads * size})), index);
  return found.value().reshape({rows, index.dim(1) / length, length, heads, size});
}

ops::BlockPlacing placing_of(const BlockLog* log, const StateView& state, const CarriedBlocks& carried) {
  std::vector<int64_t> length(static_cast<size_t>(state.rows()), 0), oldest;
  if (log != nullptr) length = carried.length;
  for (const int64_t of_row : length) oldest.push_back(carried.max_length - of_row);
  ops::BlockPlacing placing;
  placing.length = by_row(length, state.device());
  placing.first = by_row(oldest, state.device());
  placing.head = log == nullptr ? placing.length : log->head(state);
  placing.slots = log == nullptr ? 1 : log->slots(state);
  placing.stored = carried.max_length;
  return placing;
}

BlockLogOptions log_of_tokens(int64_t period, int64_t capacity, int64_t key_heads, int64_t size, int64_t value_size) {
  return {.period = period,
          .capacity = capacity,
          .begun = {{"keys", {key_heads, size}}, {"values", {key_heads, value_size}}},
          .keys = {period, key_heads, size},
          .values = {period, key_heads, value_size},
          .summary = {"keys", {key_heads, size}}};
}

BlockLog::BlockLog(const Scope& scope, const BlockLogOptions& options) : name_(scope.path()), options_(options) {
  tail_ = scope.state_logs("tail", std::max<int64_t>(1, options.period - 1));
  for (const BlockLogOptions::Entry& entry : options.begun)
    begun_.push_back(scope.state_log(tail_, entry.name, entry.shape));
  blocks_ = scope.state_logs(options.name, options.capacity,
                             {.grain = options.period, .place = options.place, .waits = true});
  keys_ = declare_vectors(scope, blocks_, "keys", options.keys, options.dtype);
  values_ = declare_vectors(scope, blocks_, "values", options.values, options.dtype);
  index_ = scope.state_logs("index", options.capacity, {.grain = options.period, .waits = true});
  summaries_ = scope.state_log(index_, options.summary.name, options.summary.shape);
}

std::vector<Variable> BlockLog::behind_tails(Tape& tape, const StateView& state, const CarriedBlocks& carried,
                                             std::vector<Variable> x) const {
  if (carried.max_tail == 0) return x;
  std::vector<int64_t> first = state.lengths(tail_);
  for (size_t row = 0; row < first.size(); ++row) first[row] -= carried.tail[row];
  for (size_t n = 0; n < x.size(); ++n) {
    const Tensor tail = state.gather(begun_[n], carried.max_tail, first, carried.tail);
    x[n] = concatenate(tape, std::vector{Variable::constant(tail), x[n]}, 1);
  }
  return x;
}

Tensor BlockLog::summaries(const StateView& state, const CarriedBlocks& carried, int64_t first, int64_t last) const {
  std::vector<int64_t> from, count;
  for (const int64_t length : carried.length) {
    const int64_t oldest = carried.max_length - length;  // blocks before it do not exist in this row
    from.push_back(std::max<int64_t>(0, first - oldest));
    count.push_back(std::max<int64_t>(0, last - std::max(first, oldest)));
  }
  return state.gather(summaries_, last - first, from, count);
}

Tensor BlockLog::stored_summaries(const StateView& state) const {
  const Tensor ring = state.stored_ring(summaries_);
  Shape shape(std::span(ring.shape().begin() + 1, ring.shape().end()));
  shape[0] *= ring.dim(0);
  return ring.reshape(shape);
}

void BlockLog::forget_pages(const StateView& state) const {
  if (options_.place != LogPlace::file) return;
  for (const LogId log : {keys_.log, keys_.scale, values_.log, values_.scale}) {
    if (log.defined()) state.forget_pages(log);
  }
}

void BlockLog::append_blocks(const StateView& state, const AddedBlocks& added, const Tensor& keys, const Tensor& values,
                             const Tensor& summaries) const {
  const auto append = [&](const VectorLog& log, const Tensor& blocks, const Shape& entry) {
    const int64_t count = blocks.defined() ? blocks.numel() / (state.rows() * entry.numel()) : 1;
    const Shape shape = with_leading({state.rows(), count}, entry);
    store_vectors(state, log,
                  blocks.defined() ? blocks.reshape(shape) : Tensor::zeros(shape, state.dtype(), state.device()),
                  [&](LogId to, const Tensor& stored) { state.append(to, stored, added.first, added.count); });
  };
  append(keys_, keys, options_.keys);
  append(values_, values, options_.values);
  append({summaries_, {}}, summaries, options_.summary.shape);
}

void BlockLog::append_tokens(const Forward& f, const CarriedBlocks& carried, const Tensor& new_keys,
                             const Tensor& new_values) const {
  const StateView& state = f.state;
  Tape tape(false);
  const std::vector<Variable> all =
      behind_tails(tape, state, carried, {Variable::constant(new_keys), Variable::constant(new_values)});
  const Tensor& keys = all[0].value();
  const Tensor& values = all[1].value();
  const int64_t before = carried.max_tail;
  std::vector<int64_t> begin;  // of the blocks: their first key
  AddedBlocks added;
  std::vector<int64_t> first_token, tokens;  // of the row's last document
  for (int64_t row = 0; row < state.rows(); ++row) {
    const Segment segment = state.last_segment(row);
    const auto r = static_cast<size_t>(row);
    const int64_t position =
        segment.count == 0 ? 0 : f.batch.position[static_cast<size_t>(f.batch.at(row, segment.begin))];
    // Returns where the first block begins that is known from its beginning on.
    const int64_t first_whole =
        segment.carried ? std::max(position - carried.tail[r], carried.first[r] * options_.period) : position;
    begin.push_back(before + segment.begin + first_whole - position);
    added.first.push_back(0);
    added.count.push_back(std::max<int64_t>(0, (position + segment.count - first_whole) / options_.period));
    first_token.push_back(before + segment.begin);
    tokens.push_back(segment.count);
  }
  state.append(begun_[0], keys, first_token, tokens);
  state.append(begun_[1], values, first_token, tokens);
  const int64_t max_new = std::max<int64_t>(1, *std::max_element(added.count.begin(), added.count.end()));
  std::vector<int64_t> numbers{options_.period};
  numbers.insert(numbers.end(), begin.begin(), begin.end());
  numbers.insert(numbers.end(), added.count.begin(), added.count.end());
  const Tensor index = f.table("blocks.written", numbers, [&] {
    std::vector<int32_t> places;
    for (size_t row = 0; row < begin.size(); ++row) {
      for (int64_t n = 0; n < max_new * options_.period; ++n) {
        places.push_back(n < added.count[row] * options_.period ? static_cast<int32_t>(begin[row] + n) : -1);
      }
    }
    return Tensor::from(places, {state.rows(), max_new * options_.period}, state.device());
  });
  const Tensor key_blocks = blocks_at(keys, index, options_.period);
  const Tensor summary = Tensor::empty({state.rows(), max_new, keys.dim(2), keys.dim(3)}, keys.dtype(), keys.device());
  if (options_.landmarks) {
    ops::copy(summary, key_blocks.select(2, options_.period - 1));
  } else {
    ops::sum_axis(summary, key_blocks, 2, 1.0 / static_cast<double>(options_.period));
  }
  append_blocks(state, added, key_blocks, blocks_at(values, index, options_.period), summary);
}

}  // namespace quire
