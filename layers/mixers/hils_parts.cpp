// The window, the choice and the weights of HiLS attention.
#include "layers/mixers/hils_parts.h"

#include <algorithm>
#include <numeric>

#include "autograd/functions/axis.h"
#include "autograd/functions/listed_attention.h"
#include "autograd/functions/rows.h"

namespace quire {

Variable HilsParts::behind(const Tensor& before, const Variable& x) const {
  return before.defined() ? concatenate(tape_, std::vector{Variable::constant(before), x}, 1) : x;
}

void HilsParts::read_window(HilsMix& mix, const Variable& keys, const Variable& values) const {
  ops::BlockAttentionInputs settings;
  settings.block = t_.block;
  settings.first = t_.first;
  settings.landmark = t_.marks;
  settings.grouped = false;
  settings.scale = in_.scale;
  const BlockAttention window = block_attention(tape_, in_.q, keys, values, settings);
  mix.window = window.out;
  mix.window_sum = window.lse;
}

Variable HilsParts::own_lines(const Variable& lines) const {
  const int64_t size = lines.dim(3);
  return gather_rows(tape_, reshape(tape_, lines, {lines.value().numel() / size, size}), t_.regular);
}

Tensor HilsParts::best(const Tensor& scores, const Tensor& window_sum) const {
  Tape idle(false);
  Variable compared = Variable::constant(scores);
  if (s_.group() > 1) {
    // Heads of a group are compared by their shares of attention: the head with the longest queries would always win
    // by scores.
    const Shape column{t_.rows, s_.heads, t_.length, 1};
    const Variable of_chunks = reshape(idle, log_sum_exp(idle, compared, t_.candidates), column);
    const Variable of_window = reshape(idle, Variable::constant(window_sum), column);
    const Variable whole = log_sum_exp(idle, concatenate(idle, std::vector{of_chunks, of_window}, 3));
    const Variable shares = reshape(idle, subtract(idle, compared, reshape(idle, whole, column)),
                                    {t_.rows, s_.key_heads, s_.group(), t_.length, count_});
    compared = slice(idle, shares, 2, 0, 1);
    for (int64_t h = 1; h < s_.group(); ++h) compared = maximum(idle, compared, slice(idle, shares, 2, h, h + 1));
    compared = reshape(idle, compared, {t_.rows, s_.key_heads, t_.length, count_});
  }
  const Tensor index = top_k(compared.value(), std::min(t_.chosen, count_), t_.candidates);
  const Shape shape{t_.rows, s_.key_heads, t_.length, t_.chosen};
  if (index.is_meta()) return Tensor::empty(shape, DType::i32, index.device());
  // As many places however few chunks there are: how weights are summed up must not depend on other rows.
  const std::vector<int32_t> best = index.to_vector<int32_t>();
  std::vector<int32_t> chosen(static_cast<size_t>(shape.numel()), -1);
  for (auto [from, to] = std::pair(best.begin(), chosen.begin()); to != chosen.end(); to += t_.chosen) {
    const auto end = from + index.dim(3);
    const auto none = std::find(from, end, -1);
    std::sort(to, std::copy(from, none, to));
    from = end;
  }
  return Tensor::from(chosen, shape, index.device());
}

std::vector<int32_t> HilsParts::all_stored() const {
  std::vector<int32_t> places(static_cast<size_t>(t_.rows * t_.stored));
  for (auto row = places.begin(); row != places.end(); row += t_.stored) std::iota(row, row + t_.stored, 0);
  return places;
}

HilsReads HilsParts::reads(const Tensor& chosen, bool all) const {
  const Shape shape{t_.rows, t_.length, s_.key_heads, t_.chosen};
  // A plan reads no values, and takes more than any choice needs.
  if (chosen.is_meta()) return {Tensor::empty(shape, DType::i32, chosen.device()), all_stored()};
  const std::vector<int32_t> places = chosen.to_vector<int32_t>();
  const auto stored = static_cast<int32_t>(t_.stored);
  const int64_t of_row = s_.key_heads * t_.length * t_.chosen;
  std::vector<std::vector<int32_t>> number, found(static_cast<size_t>(t_.rows));  // of the stored ones of each row
  size_t count = 0;
  for (std::vector<int32_t>& own : found) {
    std::vector<int32_t>& of = number.emplace_back(stored, all ? 0 : -1);
    const auto begin = places.begin() + (&own - found.data()) * of_row;
    std::for_each(begin, begin + of_row, [&](int32_t place) {
      if (place >= 0 && place < stored) of[static_cast<size_t>(place)] = 0;
    });
    for (int32_t place = 0; place < stored; ++place) {
      if (of[static_cast<size_t>(place)] < 0) continue;
      of[static_cast<size_t>(place)] = static_cast<int32_t>(own.size());
      own.push_back(place);
    }
    count = std::max(count, own.size());
  }
  HilsReads reads;
  for (std::vector<int32_t>& own : found) {
    own.resize(count, -1);
    reads.places.insert(reads.places.end(), own.begin(), own.end());
  }
  std::vector<int32_t> blocks(places.size());
  auto place = places.begin();
  for (int64_t row = 0; row < t_.rows; ++row) {
    const auto first = static_cast<int32_t>(row * static_cast<int64_t>(count)),
               first_own = static_cast<int32_t>(-2 - row * t_.own);
    for (int64_t head = 0; head < s_.key_heads; ++head) {
      for (int64_t cell = 0; cell < t_.length; ++cell) {
        auto to = blocks.begin() + ((row * t_.length + cell) * s_.key_heads + head) * t_.chosen;
        for (int64_t n = 0; n < t_.chosen; ++n, ++place, ++to) {
          *to = *place < 0        ? -1
                : *place < stored ? first + number[static_cast<size_t>(row)][static_cast<size_t>(*place)]
                                  : first_own - (*place - stored);
        }
      }
    }
  }
  reads.blocks = Tensor::from(blocks, shape, chosen.device());
  return reads;
}

std::pair<Tensor, Tensor> HilsParts::stored(const std::vector<int32_t>& places) const {
  const int64_t count = static_cast<int64_t>(places.size());
  const auto of = [&](const Tensor& lines, int64_t size) {
    const Shape shape{count, config_.chunk, s_.key_heads, size};
    return count == 0 ? Tensor::empty(shape, in_.q.value().dtype(), in_.q.value().device()) : lines.reshape(shape);
  };
  const auto [keys, values] = count == 0 ? std::pair<Tensor, Tensor>() : in_.fetch(places);
  return {of(keys, s_.size), of(values, s_.value_size)};
}

Variable HilsParts::all_keys(const Tensor& stored, const Variable& own) const {
  if (t_.stored == 0) return own;
  const Shape by_chunk{t_.rows, t_.stored, config_.chunk, s_.key_heads, s_.size};
  const Variable regular = slice(tape_, Variable::constant(stored.reshape(by_chunk)), 2, 0, config_.regular());
  return concatenate(tape_, std::vector{permute(tape_, regular, {0, 3, 1, 2, 4}), own}, 2);
}

Variable HilsParts::read_chunks(const HilsMix& mix, const HilsReads& reads, const std::pair<Tensor, Tensor>& stored,
                                const Variable& keys, const Variable& values) const {
  ops::ListedAttentionInputs settings;
  settings.keys = stored.first, settings.values = stored.second;
  settings.blocks = reads.blocks;
  settings.own_blocks = t_.spans;
  settings.length = config_.regular();
  settings.scale = in_.scale;
  return listed_attention(tape_, in_.q, {{}, {}, keys, values, mix.weights}, settings).out;
}

Tensor HilsParts::for_all_heads(const Tensor& index) const {
  const Shape by_group{t_.rows, s_.key_heads, s_.group(), t_.length, t_.chosen};
  const Tensor all = Tensor::empty(by_group, DType::i32, index.device());
  ops::copy(all, index.reshape({t_.rows, s_.key_heads, 1, t_.length, t_.chosen}).broadcast(by_group));
  return all.reshape({t_.rows, s_.heads, t_.length, t_.chosen});
}

void HilsParts::weigh(HilsMix& mix, const Variable& scores) const {
  const Shape column{t_.rows, s_.heads, t_.length, 1};
  const Tensor zero = Tensor::zeros(column, mix.window_sum.value().dtype(), mix.window_sum.value().device());
  std::vector<Variable> terms{reshape(tape_, mix.window_sum, column), Variable::constant(zero)};
  if (t_.chosen > 0) {
    const Variable by_place = reshape(tape_, scores, {t_.rows, s_.heads, t_.length, count_, 1});
    const Tensor index = for_all_heads(mix.chosen);
    mix.scores = reshape(tape_, gather_rows(tape_, by_place, index), index.shape());
    terms.insert(terms.begin(), mix.scores);
  }
  mix.weights = softmax(tape_, concatenate(tape_, terms, 3), t_.terms);
}

Variable HilsParts::of_window(const HilsMix& mix) const {
  const Variable weight = slice(tape_, mix.weights, 3, t_.chosen, t_.chosen + 1);
  return multiply(tape_, mix.window, convert(tape_, heads_first(weight), mix.window.value().dtype()));
}

}  // namespace quire
