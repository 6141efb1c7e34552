#include "trainers/setup/gradient_reducer.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

GradientReducer::GradientReducer(const ParameterStore& store, const ParameterParts& parts)
    : store_(store), parts_(parts) {
  for (size_t bucket = 0; bucket < parts.buckets().size(); ++bucket) {
    open_.push_back(parts.buckets()[bucket].entries.size());
    for (const size_t entry : parts.buckets()[bucket].entries) {
      bucket_of_[store.entries()[entry].variable.gradient().get()] = bucket;
    }
  }
}

void GradientReducer::watch(Tape& tape, Ranks& ranks) {
  begin_anew();
  begun_before_ = ranks.collectives().finished();  // equals all that were begun, because every step waits for them
  tape.on_last_use([this, &ranks](const std::shared_ptr<Gradient>& parameter) { used(parameter.get(), ranks); });
}

void GradientReducer::used(const Gradient* parameter, Ranks& ranks) {
  const size_t bucket = bucket_of_.at(parameter);
  QUIRE_CHECK(open_[bucket] > 0, "gradients: a parameter was used after its last use");
  if (--open_[bucket] == 0) done_.push_back(bucket);
  while (left_ < order_.size() && open_[order_[left_]] == 0) leave(order_[left_++], ranks);
}

void GradientReducer::leave(size_t bucket, Ranks& ranks) {
  const ParameterParts::Bucket& one = parts_.buckets()[bucket];
  ranks.collectives().reduce_scatter(store_.gradients().slice(0, one.range.begin, one.range.end), one.bounds);
}

void GradientReducer::flush(Ranks& ranks) {
  const auto finished = static_cast<size_t>(ranks.collectives().finished() - begun_before_);
  if (order_.empty()) learn_order(ranks);
  int64_t early = 0;
  for (size_t i = 0; i < std::min(finished, left_); ++i) early += parts_.buckets()[order_[i]].range.size();
  overlap_ = static_cast<double>(early) / static_cast<double>(std::max<int64_t>(store_.gradients().numel(), 1));
  while (left_ < order_.size()) leave(order_[left_++], ranks);

  begin_anew();
}

void GradientReducer::begin_anew() {
  left_ = 0;
  done_.clear();
  for (size_t bucket = 0; bucket < open_.size(); ++bucket) open_[bucket] = parts_.buckets()[bucket].entries.size();
}

// Takes root's order. Root's sweep may not reach all buckets, and a rank without rows has no sweep.
void GradientReducer::learn_order(Ranks& ranks) {
  std::vector<size_t> mine = done_;
  for (size_t bucket = open_.size(); bucket-- > 0;) {
    if (std::find(mine.begin(), mine.end(), bucket) == mine.end()) mine.push_back(bucket);
  }
  order_ = unpacked<size_t>(ranks.broadcast_from_root(packed<size_t>(mine)));
}

void GradientReducer::gather_values(Ranks& ranks) const {
  for (const ParameterParts::Bucket& bucket : parts_.buckets()) {
    ranks.collectives().all_gather(store_.values().slice(0, bucket.range.begin, bucket.range.end), bucket.bounds);
  }
  ranks.collectives().wait();
}

}  // namespace quire
