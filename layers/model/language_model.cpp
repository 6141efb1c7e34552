#include "layers/model/language_model.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/embedding.h"
#include "autograd/functions/rows.h"
#include "core/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/position.h"
#include "layers/mechanism/mechanism_registry.h"
#include "layers/model/model_mechanisms.h"

namespace quire {

namespace {

// Ties go to the lower id.
template <typename T>
int32_t place_of_largest(const std::vector<T>& values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

int32_t most_likely(const Tensor& logits) {
  return logits.dtype() == DType::f64 ? place_of_largest(logits.to_vector<double>())
                                      : place_of_largest(logits.to_vector<float>());
}

// 1 where the target is an inserted token, which no batch counts.
std::vector<uint8_t> predicts_inserted(const Batch& batch, int64_t vocabulary) {
  std::vector<uint8_t> predicts;
  for (const int32_t target : batch.targets) predicts.push_back(target >= vocabulary ? 1 : 0);
  return predicts;
}

// f64 [1]: the sum of nats at some positions, for reports.
Variable sum_where(const std::vector<uint8_t>& there, const Tensor& nll) {
  const std::vector<double> factors(there.begin(), there.end());
  const Tensor chosen = Tensor::empty_like(nll);
  const Tensor wide = Tensor::from(factors, nll.shape(), nll.device());
  const Tensor factor = nll.dtype() == DType::f64 ? wide : Tensor::empty_like(nll);
  if (nll.dtype() != DType::f64) ops::convert(factor, wide);
  ops::multiply(chosen, nll, factor);
  const Tensor total = Tensor::empty({1}, DType::f64, nll.device());
  ops::sum_all(total, chosen);
  return Variable::constant(total);
}

// Returns the value of another tensor, f64 [1], with the gradient of x.
Variable with_value_of(Tape& tape, const Variable& x, const Tensor& value) {
  const Tensor difference = Tensor::empty_like(value);
  ops::add(difference, value, x.value(), 1, -1);
  return add(tape, x, Variable::constant(difference));
}

}  // namespace

LanguageModel::LanguageModel(const Scope& scope, const ModelConfig& config, int64_t vocabulary)
    : config_(config),
      vocabulary_(vocabulary),
      rows_(config.vocabulary.value_or(vocabulary)),
      insertion_(insertion_of(config)),
      declared_(scope.declared()) {
  if (rows_ < vocabulary) {
    fail(ErrorKind::config, "model.vocabulary: {} rows are less than the {} ids of the tokenizer; use that or more",
         rows_, vocabulary);
  }
  const Initialization initialization(config);
  embedding_ = scope.child("embedding").param("weight", {rows_, config.width}, initialization.embedding());
  if (insertion_.any()) {
    inserted_ = scope.child("embedding").param("inserted", {insertion_.ids, config.width}, initialization.embedding());
  }
  if (config.embedding.sinusoid) {
    sinusoid_ = scope.child("embedding").param_without_decay("sinusoid", {1}, Initializer::constant(0));
  }
  if (config.embedding.learned_positions) {
    positions_ =
        scope.child("embedding")
            .param("positions", {*config.embedding.learned_positions, config.width}, initialization.embedding());
  }
  const Mechanism& stack = mechanism(Role::stack, config.stack.mechanism.kind);
  const std::vector<LayerConfig> layers = config.layer_configs();
  stack_ = stack.make_stack(scope.child("stack"), {config, layers.front(), config.stack.mechanism.options});
  if (config.norm.last) norm_.emplace(scope.child("norm"), config);
  if (!config.embedding.tied) {
    head_ = scope.child("head").param("weight", {rows_, config.width}, initialization.head());
  }
  if (config.embedding.output_bias) {
    head_bias_ = scope.child("head").param_without_decay("bias", {rows_}, Initializer::constant(0));
  }
  if (!insertion_.predicts()) return;
  if (!config.embedding.tied) {
    head_inserted_ = scope.child("head").param("inserted", {insertion_.ids, config.width}, initialization.head());
  }
  if (config.embedding.output_bias) {
    head_inserted_bias_ =
        scope.child("head").param_without_decay("inserted_bias", {insertion_.ids}, Initializer::constant(0));
  }
}

const Variable& LanguageModel::head() const {
  return head_.defined() ? head_ : embedding_;
}

// The hidden states are multiplied by output_scale before the projection.
Variable LanguageModel::head_bias(Tape& tape, const Parameter& bias) const {
  if (!bias.defined()) return {};
  const double factor = config_.embedding.output_scale;
  return factor == 1 ? bias : scale(tape, bias, factor);
}

Variable LanguageModel::embedded(const Forward& f) const {
  const Batch& batch = f.batch;
  const Shape shape{batch.rows, batch.length};
  const Device device = static_cast<const Variable&>(embedding_).value().device();
  const double factor = config_.embedding.scale ? std::sqrt(static_cast<double>(config_.width)) : 1.0;
  if (!insertion_.any()) return embedding(f.tape, embedding_, Tensor::from(batch.tokens, shape, device), factor);
  // Each position has a row of one table, and zeros of the other.
  const auto first = static_cast<int32_t>(vocabulary_);
  std::vector<int32_t> ids = batch.tokens;
  std::vector<int32_t> inserted = batch.tokens;
  for (int32_t& id : ids) id = id < first ? id : -1;
  for (int32_t& id : inserted) id -= first;
  return add(f.tape, embedding(f.tape, embedding_, Tensor::from(ids, shape, device), factor),
             embedding(f.tape, inserted_, Tensor::from(inserted, shape, device), factor));
}

// A model that carries state reads one document from its beginning (generation); the others begin anew in each
// subsequence.
Variable LanguageModel::with_positions(const Forward& f, const Variable& x) const {
  if (!positions_.defined()) return x;
  const Batch& batch = f.batch;
  std::vector<int32_t> index(batch.tokens.size(), -1);
  const bool carries = !declared_.state.logs().empty();
  for (const Segment& segment : f.state.segments()) {
    for (int64_t n = 0; n < segment.count; ++n) {
      const auto cell = static_cast<size_t>(batch.at(segment.row, segment.begin + n));
      index[cell] = carries ? batch.position[cell] : static_cast<int32_t>(n);
      QUIRE_CHECK(index[cell] < positions_.value().dim(0), "embedding.learned_positions: position {} of {}",
                  index[cell], positions_.value().dim(0));
    }
  }
  const Tensor places = Tensor::from(index, {batch.rows, batch.length}, x.value().device());
  return add(f.tape, x, embedding(f.tape, positions_, places, 1));
}

std::vector<int32_t> LanguageModel::target_rows(const Batch& batch) const {
  std::vector<int32_t> rows = batch.targets;
  if (rows_ == vocabulary_) return rows;
  for (int32_t& row : rows) {
    if (row >= vocabulary_) row += static_cast<int32_t>(rows_ - vocabulary_);
  }
  return rows;
}

Variable LanguageModel::hidden(const Forward& f) const {
  const Batch& batch = f.batch;
  Variable x = embedded(f);
  if (sinusoid_.defined()) {
    const int64_t count = batch.rows * batch.length;
    const Tensor positions = Tensor::empty_like(x.value());
    ops::sinusoid_at(positions.reshape({count, config_.width}),
                     Tensor::from(batch.position, {count}, x.value().device()), config_.embedding.sinusoid_base);
    x = add_scaled(f.tape, x, positions, sinusoid_);
  }
  x = with_positions(f, x);
  x = dropout(f.tape, x, {}, f.dropout(hash_scope("embedding.dropout"), config_.dropout.embedding));
  x = (*stack_)(f, x);
  if (norm_) x = (*norm_)(f.tape, x);
  if (config_.embedding.output_scale != 1) x = scale(f.tape, x, config_.embedding.output_scale);
  return dropout(f.tape, x, {}, f.dropout(hash_scope("output.dropout"), config_.dropout.output));
}

std::vector<std::pair<std::string, int64_t>> LanguageModel::loss_counts(const Batch& batch,
                                                                        const CrossEntropyExtras& extras) const {
  std::vector<std::pair<std::string, int64_t>> counts = declared_.losses.counts(batch);
  counts.insert(counts.begin(), {"nll", batch.target_count});
  int64_t all = batch.target_count;
  if (insertion_.predicts()) {
    const std::vector<uint8_t> predicts = predicts_inserted(batch, vocabulary_);
    counts.emplace_back("inserted_nll", std::count(predicts.begin(), predicts.end(), 1));
    all += counts.back().second;
  }
  if (extras.log_sum_weight != 0) counts.emplace_back("z_loss", all);
  if (extras.smoothing != 0) counts.emplace_back("uniform_nll", all);
  return counts;
}

Forward LanguageModel::begin(const Forward& f) const {
  Forward pass = f;
  if (config_.recompute != Recompute::none && f.tape.get().recording()) {
    pass.selections = std::make_shared<Selections>();
  }
  pass.values = std::make_shared<std::vector<Variable>>(declared_.values.size());
  return pass;
}

CrossEntropy LanguageModel::cross_entropy(const Forward& f, const Variable& h, bool with_inserted) const {
  const Device device = h.value().device();
  const Batch& batch = f.batch;
  const int64_t count = batch.rows * batch.length;
  std::vector<uint8_t> mask = batch.loss_mask;
  VocabularyPart inserted;
  if (with_inserted) {
    const std::vector<uint8_t> predicts = predicts_inserted(batch, vocabulary_);
    for (size_t i = 0; i < mask.size(); ++i) mask[i] |= predicts[i];
    inserted = {head_inserted_.defined() ? head_inserted_ : inserted_, head_bias(f.tape, head_inserted_bias_)};
  }
  return projection_cross_entropy(f.tape, h, VocabularyPart{head(), head_bias(f.tape, head_bias_)}, inserted,
                                  Tensor::from(target_rows(batch), {count}, device),
                                  Tensor::from(mask, {count}, device), f.nll_seed, 0, f.extras);
}

LossTerms LanguageModel::loss(const Forward& f) const {
  Forward pass = begin(f);
  if (declared_.losses.size() > 0) {
    const Device device = static_cast<const Variable&>(embedding_).value().device();
    pass.loss_sums = Tensor::zeros({declared_.losses.size()}, DType::f64, device);
  }
  RetrievedDistances distances;
  if (pass.telemetry != nullptr) pass.distances = &distances;
  CrossEntropy entropy = cross_entropy(pass, hidden(pass), insertion_.predicts());
  // The text's sum keeps the gradient of everything.
  if (f.extras.any()) entropy.sum = with_value_of(pass.tape, entropy.sum, entropy.likelihood);
  Variable inserted_sum;
  if (insertion_.predicts()) {
    inserted_sum = sum_where(predicts_inserted(f.batch, vocabulary_), entropy.nll);
    entropy.sum = add(pass.tape, entropy.sum, scale(pass.tape, inserted_sum, -1));
  }
  if (pass.telemetry != nullptr) distances.report(*pass.telemetry);
  const auto counts = loss_counts(f.batch, f.extras);
  LossTerms terms{{{counts[0].first, entropy.sum, counts[0].second}}, entropy.nll};
  for (int64_t i = 0; i < declared_.losses.size(); ++i) {
    const auto& [name, count] = counts[static_cast<size_t>(i) + 1];
    terms.terms.push_back({name, Variable::constant(pass.loss_sums.slice(0, i, i + 1)), count});
  }
  const auto report = [&](const Variable& sum) {
    const auto& [name, count] = counts[terms.terms.size()];
    terms.terms.push_back({name, sum, count});
  };
  if (inserted_sum.defined()) report(inserted_sum);
  if (entropy.z_loss.defined()) report(Variable::constant(entropy.z_loss));
  if (entropy.uniform.defined()) report(Variable::constant(entropy.uniform));
  return terms;
}

TargetScores LanguageModel::score(const Forward& f, const std::vector<int64_t>& cells) const {
  QUIRE_CHECK(!f.tape.get().recording(), "score: needs a tape that does not record");
  const Variable h = hidden(begin(f));
  TargetScores scores{cross_entropy(f, h, false).nll, {}};
  const int64_t width = h.value().dim(2);
  const Tensor flat = h.value().reshape({f.batch.rows * f.batch.length, width});
  for (const int64_t cell : cells) {
    scores.best.push_back(most_likely(logits(f, flat.slice(0, cell, cell + 1), vocabulary_)));
  }
  return scores;
}

Tensor LanguageModel::next_logits(const Forward& f, int64_t at) const {
  QUIRE_CHECK(!f.tape.get().recording(), "next_logits: needs a tape that does not record");
  return logits(f, hidden(begin(f)).value().select(1, at), vocabulary_);
}

Tensor LanguageModel::read(const Forward& f, const std::vector<int64_t>& cells, const UseLogits& use) const {
  QUIRE_CHECK(!f.tape.get().recording(), "read: needs a tape that does not record");
  const Variable h = hidden(begin(f));
  const Tensor nll = f.batch.target_count > 0 ? cross_entropy(f, h, false).nll : Tensor();
  const Tensor flat = h.value().reshape({f.batch.rows * f.batch.length, h.value().dim(2)});
  constexpr int64_t kMaxLogits = int64_t{1} << 20;  // at a time
  const auto max_cells = static_cast<size_t>(std::max<int64_t>(kMaxLogits / rows_, 1));
  for (size_t first = 0; first < cells.size(); first += max_cells) {
    const size_t count = std::min(max_cells, cells.size() - first);
    const auto begin = cells.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<int32_t> index(begin, begin + static_cast<std::ptrdiff_t>(count));
    const Tensor places = Tensor::from(index, {static_cast<int64_t>(count)}, flat.device());
    const Tensor chosen = gather_rows(f.tape, Variable::constant(flat), places).value();
    use(nll, first, logits(f, chosen, rows_));
  }
  return nll;
}

Tensor LanguageModel::logits(const Forward& f, const Tensor& hidden, int64_t ids) const {
  const Tensor logits = Tensor::empty({hidden.dim(0), ids}, wide_type(hidden.dtype()), hidden.device());
  const Variable bias = head_bias(f.tape, head_bias_);
  ops::gemm(logits, hidden, head().value().slice(0, 0, ids),
            {.transpose_b = true, .bias = bias.defined() ? bias.value().slice(0, 0, ids) : Tensor()});
  return logits;
}

}  // namespace quire
