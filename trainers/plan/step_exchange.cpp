#include "trainers/plan/step_exchange.h"

#include <algorithm>

#include "trainers/plan/plan.h"
#include "trainers/plan/random_batch.h"
#include "trainers/step/step_counts.h"

namespace quire {

namespace {

// Returns the share of the whole that one rank lacks.
double share_of_others(int64_t ranks) {
  return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

}  // namespace

int64_t StepExchange::arena_bytes() const {
  int64_t total = 0;
  for (const Bucket& bucket : buckets) total += bucket.bytes;
  return total;
}

double StepExchange::gradient_bytes() const {
  return share_of_others(ranks) * static_cast<double>(arena_bytes());
}

double StepExchange::weight_bytes() const {
  return gradient_bytes();
}

double StepExchange::sum_bytes() const {
  int64_t total = 0;
  for (const int64_t bytes : sums) total += bytes;
  return 2 * share_of_others(ranks) * static_cast<double>(total);  // parts of sums are sent, and whole sums return
}

StepExchanges::StepExchanges(const RunConfig& config) : cut_(cut_of(config.optimizer)) {
  const int64_t vocabulary = expected_vocabulary(config);
  const DType dtype = computing_type(config.run.precision, planned_device(config.run));
  RunConfig one_row = config;  // the sums do not depend on rows
  one_row.data.rows = 1;
  training_ = std::make_unique<TrainingState>(one_row, vocabulary, Machine{kMeta, dtype, "meta"});
  const Batch batch = random_batch(one_row.data, vocabulary, training_->network.model.insertion(), 0);
  const auto terms = static_cast<int64_t>(begin_step(training_->network.model, config, batch, 1, 1).counts.size());
  for (const Learner* learner : training_->network.model.learners()) {
    for (const Tensor& sum : learner->sums()) sums_.push_back(sum.bytes());
  }
  constexpr auto kDouble = static_cast<int64_t>(sizeof(double));
  sums_.push_back(terms * kDouble);
  sums_.push_back(kDouble);  // the gradient norm
}

StepExchange StepExchanges::of(int64_t ranks) const {
  if (ranks == 1) return {};
  StepExchange exchange{.ranks = ranks, .buckets = {}, .sums = sums_, .host_exchanges = 2, .host_exchanges_logged = 2};
  const auto item = static_cast<int64_t>(size_of(training_->store.values().dtype()));
  const ParameterParts parts(training_->store, {0, static_cast<int>(ranks)}, cut_);
  for (const ParameterParts::Bucket& bucket : parts.buckets()) {
    StepExchange::Bucket& one = exchange.buckets.emplace_back();
    one.bytes = one.min_part = bucket.range.size() * item;
    for (size_t rank = 0; rank + 1 < bucket.bounds.size(); ++rank) {
      const int64_t bytes = (bucket.bounds[rank + 1] - bucket.bounds[rank]) * item;
      one.min_part = std::min(one.min_part, bytes);
      one.max_part = std::max(one.max_part, bytes);
    }
  }
  return exchange;
}

}  // namespace quire
