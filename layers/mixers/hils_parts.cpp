// The window, the choice and the weights of HiLS attention.
#include "layers/mixers/hils_parts.h"

#include <algorithm>
#include <span>

#include "autograd/functions/axis.h"
#include "autograd/functions/blocks.h"
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

Variable HilsParts::regular_by_head(const Variable& x) const {
  return permute(tape_, slice(tape_, x, 2, 0, config_.regular()), {0, 3, 1, 2, 4});
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
  for (int64_t i = 0; i < index.numel(); ++i) {
    chosen[static_cast<size_t>(i / index.dim(3) * t_.chosen + i % index.dim(3))] = best[static_cast<size_t>(i)];
  }
  for (auto at = chosen.begin(); at != chosen.end(); at += t_.chosen) {
    std::sort(at, std::find(at, at + t_.chosen, -1));
  }
  return Tensor::from(chosen, shape, index.device());
}

std::vector<int32_t> HilsParts::on_host(const Tensor& chosen) const {
  if (chosen.is_meta()) return std::vector<int32_t>(static_cast<size_t>(chosen.numel()), 0);  // a plan reads no values
  return chosen.to_vector<int32_t>();
}

std::vector<int32_t> HilsParts::all_stored() const {
  std::vector<int32_t> places;
  for (int64_t i = 0; i < t_.rows * t_.stored; ++i) places.push_back(static_cast<int32_t>(i % t_.stored));
  return places;
}

std::vector<int32_t> HilsParts::take_stored(std::vector<int32_t>& chosen) const {
  if (in_.q.value().is_meta()) return all_stored();  // more than any choice needs
  const auto stored = static_cast<int32_t>(t_.stored), own = static_cast<int32_t>(t_.own);
  const size_t of_row = chosen.size() / static_cast<size_t>(t_.rows);
  std::vector<std::vector<int32_t>> found(static_cast<size_t>(t_.rows));
  size_t count = 0;
  for (size_t row = 0; row < found.size(); ++row) {
    const std::span<int32_t> of_queries(chosen.data() + row * of_row, of_row);
    std::vector<int32_t> number(static_cast<size_t>(stored), -1);
    for (const int32_t place : of_queries) {
      if (place >= 0 && place < stored) number[static_cast<size_t>(place)] = 0;
    }
    for (int32_t place = 0; place < stored; ++place) {
      if (number[static_cast<size_t>(place)] < 0) continue;
      number[static_cast<size_t>(place)] = own + static_cast<int32_t>(found[row].size());
      found[row].push_back(place);
    }
    for (int32_t& place : of_queries) {
      if (place >= 0) place = place < stored ? number[static_cast<size_t>(place)] : place - stored;
    }
    count = std::max(count, found[row].size());
  }
  std::vector<int32_t> places;
  for (std::vector<int32_t>& of_row_found : found) {
    of_row_found.resize(count, -1);
    places.insert(places.end(), of_row_found.begin(), of_row_found.end());
  }
  return places;
}

HilsLines HilsParts::stored_lines(const std::vector<int32_t>& places) const {
  if (places.empty()) return {};
  const auto [keys, values] = in_.fetch(places);
  return {regular_by_head(Variable::constant(keys)), regular_by_head(Variable::constant(values))};
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
