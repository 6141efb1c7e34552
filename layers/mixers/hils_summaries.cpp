// The summaries of chunks and their scores.
#include "autograd/functions/axis.h"
#include "autograd/functions/rows.h"
#include "layers/mixers/hils_parts.h"

namespace quire {

Variable HilsParts::wide(const Variable& x) const {
  const DType type = wide_type(x.value().dtype());
  return type == x.value().dtype() ? x : convert(tape_, x, type);
}

Variable HilsParts::by_key_head(const Variable& x) const {
  const Shape shape{t_.rows, t_.own, s_.key_heads, s_.group(), x.dim(3)};
  return permute(tape_, reshape(tape_, x, shape), {0, 2, 1, 3, 4});
}

Variable HilsParts::by_chunk(const Variable& x) const {
  return reshape(tape_, permute(tape_, x, {0, 2, 1, 3, 4}), {t_.rows, t_.own, s_.heads, x.dim(4)});
}

Variable HilsParts::repeated(const Variable& x) const {
  const Variable one = reshape(tape_, x, {t_.rows, t_.own, s_.key_heads, 1, s_.size});
  const Variable all = broadcast(tape_, one, {t_.rows, t_.own, s_.key_heads, s_.group(), s_.size});
  return reshape(tape_, all, {t_.rows, t_.own, s_.heads, s_.size});
}

Variable HilsParts::landmark_queries() const {
  if (in_.shared.defined()) return in_.shared;
  const Variable lines = reshape(tape_, in_.score_q, {t_.rows, t_.length, s_.heads * s_.size});
  return reshape(tape_, gather_rows(tape_, lines, t_.landmarks), {t_.rows, t_.own, s_.heads, s_.size});
}

Variable HilsParts::landmark_keys(const Variable& keys) const {
  const Variable lines = reshape(tape_, keys, {keys.value().numel() / s_.size, s_.size});
  return wide(gather_rows(tape_, lines, t_.marked));
}

HilsSummaries HilsParts::summaries(const Variable& keys, const Variable& regular) const {
  const Shape of_heads{t_.rows, t_.own, s_.heads};
  if (config_.summary == HilsSummary::landmark) {
    const Tensor none = Tensor::zeros(of_heads, wide_type(keys.value().dtype()), keys.value().device());
    return {repeated(landmark_keys(keys)), Variable::constant(none)};
  }
  const Variable lines = wide(regular);
  const Variable products = matmul(tape_, by_key_head(wide(landmark_queries())), lines, {.transpose_b = true});
  const Variable logits = scale(tape_, products, in_.scale);
  const Variable p = softmax(tape_, logits);
  // Logs of probabilities come from logits, since a probability may be 0.
  const Variable whole = reshape(tape_, log_sum_exp(tape_, logits), {t_.rows, s_.key_heads, t_.own, s_.group(), 1});
  const Variable entropy = sum(tape_, multiply(tape_, p, subtract(tape_, whole, logits)), -1, true);
  const Variable biases = reshape(tape_, by_chunk(entropy), of_heads);
  if (config_.summary == HilsSummary::mean) {
    const Variable sums = permute(tape_, sum(tape_, lines, 3), {0, 2, 1, 3});
    const Variable all = add(tape_, sums, landmark_keys(keys));
    return {repeated(scale(tape_, all, 1 / static_cast<double>(config_.chunk))), biases};
  }
  return {by_chunk(matmul(tape_, p, lines)), biases};
}

Variable HilsParts::summary_scores(const HilsSummaries& own) const {
  Variable keys = own.keys, biases = own.biases;
  if (t_.stored > 0) {
    keys = concatenate(tape_, std::vector{Variable::constant(in_.summaries), keys}, 1);
    biases = concatenate(tape_, std::vector{Variable::constant(in_.biases), biases}, 1);
  }
  const Variable products = matmul(tape_, heads_first(wide(in_.score_q)), heads_first(keys), {.transpose_b = true});
  const Variable by_head = reshape(tape_, permute(tape_, biases, {0, 2, 1}), {t_.rows, s_.heads, 1, count_});
  return add(tape_, scale(tape_, products, in_.scale), by_head);
}

Variable HilsParts::exact_scores(const Variable& keys) const {
  const int64_t regular = config_.regular();
  const Variable queries =
      reshape(tape_, heads_first(wide(in_.q)), {t_.rows, s_.key_heads, s_.group() * t_.length, s_.size});
  const Variable lines = reshape(tape_, wide(keys), {t_.rows, s_.key_heads, count_ * regular, s_.size});
  const Variable logits = scale(tape_, matmul(tape_, queries, lines, {.transpose_b = true}), in_.scale);
  return log_sum_exp(tape_, reshape(tape_, logits, {t_.rows, s_.heads, t_.length, count_, regular}));
}

}  // namespace quire
