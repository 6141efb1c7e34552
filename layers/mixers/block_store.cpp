#include "layers/mixers/block_store.h"

#include <algorithm>

#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "core/check.h"
#include "kernels/axis.h"
#include "kernels/elementwise.h"

namespace quire {

Tensor blocks_at(const Tensor& lines, const Tensor& index, int64_t length) {
  Tape tape(false);
  const int64_t rows = lines.dim(0), heads = lines.dim(2), size = lines.dim(3);
  const Variable found =
      gather_rows(tape, Variable::constant(lines.reshape({rows, lines.dim(1), heads * size})), index);
  return found.value().reshape({rows, index.dim(1) / length, length, heads, size});
}

Tensor one_of(const Tensor& chosen, int64_t n) {
  const Tensor one = Tensor::empty({chosen.dim(0), chosen.dim(1), chosen.dim(2), 1}, DType::i32, chosen.device());
  ops::copy(one, chosen.slice(3, n, n + 1));
  return one;
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

BlockStore::BlockStore(const Scope& scope, const BlockStoreOptions& options) : name_(scope.path()), options_(options) {
  const int64_t heads = options.key_heads;
  tail_ = scope.state_logs("tail", std::max<int64_t>(1, options.period - 1));
  tail_keys_ = scope.state_log(tail_, "keys", {heads, options.size});
  tail_values_ = scope.state_log(tail_, "values", {heads, options.value_size});
  blocks_ =
      scope.state_logs("blocks", options.capacity, {.grain = options.period, .place = options.place, .waits = true});
  keys_ = scope.state_log(blocks_, "keys", {options.period, heads, options.size}, options.dtype);
  values_ = scope.state_log(blocks_, "values", {options.period, heads, options.value_size}, options.dtype);
  index_ = scope.state_logs("index", options.capacity, {.grain = options.period, .waits = true});
  summaries_ = scope.state_log(index_, "keys", {heads, options.size});
}

std::pair<Variable, Variable> BlockStore::behind_tails(Tape& tape, const StateView& state, const CarriedBlocks& carried,
                                                       const Variable& keys, const Variable& values) const {
  if (carried.max_tail == 0) return {keys, values};
  const std::vector<int64_t> lengths = state.lengths(tail_);
  std::vector<int64_t> first;
  for (size_t row = 0; row < lengths.size(); ++row) first.push_back(lengths[row] - carried.tail[row]);
  const auto behind = [&](LogId log, const Variable& x) {
    const Tensor tail = state.gather(log, carried.max_tail, first, carried.tail);
    return concatenate(tape, std::vector{Variable::constant(tail), x}, 1);
  };
  return {behind(tail_keys_, keys), behind(tail_values_, values)};
}

Tensor BlockStore::summaries(const StateView& state, const CarriedBlocks& carried) const {
  const std::vector<int64_t> first(carried.length.size(), 0);
  return state.gather(summaries_, carried.max_length, first, carried.length);
}

void BlockStore::forget_pages(const StateView& state) const {
  if (options_.place != LogPlace::file) return;
  state.forget_pages(keys_);
  state.forget_pages(values_);
}

void BlockStore::write(const Forward& f, const CarriedBlocks& carried, const Tensor& new_keys,
                       const Tensor& new_values) const {
  const StateView& state = f.state;
  Tape tape(false);
  const auto [all_keys, all_values] =
      behind_tails(tape, state, carried, Variable::constant(new_keys), Variable::constant(new_values));
  const Tensor& keys = all_keys.value();
  const Tensor& values = all_values.value();
  const int64_t before = carried.max_tail;
  std::vector<int64_t> begin, count;         // of the blocks: their first key, and how many there are
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
    count.push_back(std::max<int64_t>(0, (position + segment.count - first_whole) / options_.period));
    first_token.push_back(before + segment.begin);
    tokens.push_back(segment.count);
  }
  state.append(tail_keys_, keys, first_token, tokens);
  state.append(tail_values_, values, first_token, tokens);
  // Also rows that add nothing are told of: a document that begins in them ends what they hold.
  const int64_t max_new = std::max<int64_t>(1, *std::max_element(count.begin(), count.end()));
  std::vector<int64_t> numbers{options_.period};
  numbers.insert(numbers.end(), begin.begin(), begin.end());
  numbers.insert(numbers.end(), count.begin(), count.end());
  const Tensor index = f.table("blocks.written", numbers, [&] {
    std::vector<int32_t> places;
    for (size_t row = 0; row < begin.size(); ++row) {
      for (int64_t n = 0; n < max_new * options_.period; ++n) {
        places.push_back(n < count[row] * options_.period ? static_cast<int32_t>(begin[row] + n) : -1);
      }
    }
    return Tensor::from(places, {state.rows(), max_new * options_.period}, state.device());
  });
  const std::vector<int64_t> first(begin.size(), 0);
  const Tensor key_blocks = blocks_at(keys, index, options_.period);
  state.append(keys_, key_blocks, first, count);
  state.append(values_, blocks_at(values, index, options_.period), first, count);
  const Shape by_block{state.rows(), max_new, options_.key_heads, options_.size};
  const Tensor summary = Tensor::empty(by_block, keys.dtype(), keys.device());
  if (options_.landmarks) {
    ops::copy(summary, key_blocks.select(2, options_.period - 1));
  } else {
    ops::sum_axis(summary, key_blocks, 2, 1.0 / static_cast<double>(options_.period));
  }
  state.append(summaries_, summary, first, count);
}

}  // namespace quire
