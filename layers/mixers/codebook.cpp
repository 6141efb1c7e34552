#include "layers/mixers/codebook.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "layers/pass/host_values.h"

namespace quire {

Codebook::Codebook(const Scope& scope, const CodebookConfig& config, int64_t heads, int64_t codes, int64_t size)
    : name_(scope.path()),
      config_(config),
      random_scope_(hash_scope(scope.path() + ".seeds")),
      heads_(heads),
      codes_(codes),
      size_(size),
      // As published: counts of 1, and sums whose fan-in is taken to be heads times codewords.
      sum_(scope.buffer("sum", {heads, codes, size},
                        Initializer::normal(1 / std::sqrt(static_cast<double>(heads * codes))))),
      count_(scope.buffer("count", {heads, codes}, Initializer::constant(1))) {}

Tensor Codebook::codewords(DType dtype) const {
  const Tensor codewords = Tensor::empty_like(sum_->value);
  ops::codewords(codewords, sum_->value, count_->value, config_.floor, config_.smoothing);
  if (config_.dtype == CodewordType::automatic && dtype != codewords.dtype()) {
    const Tensor rounded = Tensor::empty(codewords.shape(), dtype, codewords.device());
    ops::convert(rounded, codewords);
    ops::convert(codewords, rounded);
  }
  return codewords;
}

// Every codeword, in the first step or those of k-means; else the dead ones.
bool Codebook::reseeds() const {
  return config_.reseed > 0 || (config_.init != CodebookInitialization::normal && step_.update == 1) ||
         (config_.init == CodebookInitialization::kmeans && step_.update <= config_.rounds);
}

void Codebook::begin_step(const LearnerStep& step) {
  step_ = step;
  if (config_.frozen) return;
  const auto cleared = [](Tensor& tensor, const Tensor& like) {
    if (!tensor.defined()) tensor = Tensor::empty_like(like);
    tensor.zero();
  };
  cleared(step_sums_, sum_->value);
  cleared(step_counts_, count_->value);
  if (!reseeds()) return;
  cleared(seeds_, sum_->value);
  cleared(present_, count_->value);
}

void Codebook::count(const Batch& batch, const Tensor& keys, const Tensor& codes, const Tensor& mask) {
  if (config_.frozen || !step_sums_.defined()) return;
  const int64_t tokens = batch.rows * batch.length;
  const Tensor flat = keys.reshape({tokens, heads_, size_});
  ops::code_statistics(step_counts_, step_sums_, flat, codes.reshape({tokens, heads_}), mask);
  if (!reseeds()) return;
  // One place in the global batch for each codeword, whoever reads that row; none where it is padding.
  std::vector<int32_t> index;
  std::vector<double> present;
  for (int64_t code = 0; code < heads_ * codes_; ++code) {
    const auto bits = philox(step_.key, random_scope_, 0, 0, static_cast<uint32_t>(code));
    const int64_t row = static_cast<int64_t>(bits[0]) % step_.rows - batch.first_row;
    const int64_t t = static_cast<int64_t>(bits[1]) % step_.length;
    const bool here = row >= 0 && row < batch.rows && t < batch.length && batch.has_token(batch.at(row, t));
    index.push_back(here ? static_cast<int32_t>(batch.at(row, t)) : -1);
    present.push_back(here ? 1 : 0);
  }
  const Device device = keys.device();
  ops::gather_vectors(seeds_, flat, Tensor::from(index, {heads_, codes_}, device));
  ops::add(present_, present_, tensor_of(present, {heads_, codes_}, present_.dtype(), device), 1, 1);
}

std::vector<Tensor> Codebook::sums() const {
  if (config_.frozen) return {};
  std::vector<Tensor> sums{step_sums_, step_counts_};
  if (reseeds()) sums.insert(sums.end(), {seeds_, present_});
  return sums;
}

void Codebook::update(const Tensor& control) {
  if (config_.frozen) return;
  ops::CodebookUpdate options{.decay = config_.decay, .reseed = config_.reseed};
  if (config_.init != CodebookInitialization::normal) {
    options.reseed_all = step_.update == 1;
    if (config_.init == CodebookInitialization::kmeans && step_.update <= config_.rounds) {
      options.decay = 0;
      // A codeword that no key is near to is taken from elsewhere.
      options.reseed = std::max(options.reseed, 0.5);
    }
  }
  const bool seeded = reseeds();
  ops::codebook_update(sum_->value, count_->value, step_sums_, step_counts_, seeded ? seeds_ : Tensor(),
                       seeded ? present_ : Tensor(), control, options);
}

void Codebook::report(Telemetry& telemetry) const {
  const std::vector<double> averages = values_on_host(count_->value);
  const auto [smallest, largest] = std::minmax_element(averages.begin(), averages.end());
  const auto dead = std::count_if(averages.begin(), averages.end(), [](double count) { return count < 1; });
  if (step_counts_.defined()) {
    // Averages over the codewords of a head; the mean is that over heads.
    const std::vector<double> counts = values_on_host(step_counts_);
    double perplexity = 0;
    for (int64_t h = 0; h < heads_; ++h) {
      const auto begin = counts.begin() + h * codes_;
      double total = 0;
      for (auto n = begin; n != begin + codes_; ++n) total += *n;
      double entropy = 0;
      for (auto n = begin; n != begin + codes_; ++n) {
        if (*n > 0) entropy -= *n / total * std::log(*n / total);
      }
      perplexity += std::exp(entropy) / static_cast<double>(heads_);
    }
    telemetry.emplace_back(name_ + ".perplexity", perplexity);
  }
  telemetry.emplace_back(name_ + ".dead", static_cast<double>(dead));
  telemetry.emplace_back(name_ + ".least_count", *smallest);
  telemetry.emplace_back(name_ + ".largest_count", *largest);
}

}  // namespace quire
