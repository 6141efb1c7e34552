// Writing: the entries that the kNN memory stores of a row, and those that a step adds.
#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "layers/memory/knn.h"

namespace quire {

void KnnMemory::declare_logs(const Scope& scope) {
  entries_ = scope.state_logs("", config_.carry.length, {.place = config_.carry.place, .waits = true, .ages = true});
  const Shape vectors{mixer_.key_heads, mixer_.head_size};
  keys_ = declare_vectors(scope, entries_, "keys", vectors, stored_type(config_.carry.dtype));
  values_ = declare_vectors(scope, entries_, "values", vectors, stored_type(config_.carry.dtype));
  if (config_.stale.refresh > 0) {
    inputs_ = scope.state_log(entries_, "inputs", {mixer_.width});
  } else {
    // Also with write: never, which --resume may set and take back.
    const LogGroupId probe = scope.state_logs("probe", std::min(kProbes, config_.carry.length), {.waits = true});
    probe_inputs_ = scope.state_log(probe, "inputs", {mixer_.width});
    probe_keys_ = scope.state_log(probe, "keys", vectors);
  }
}

std::vector<int64_t> KnnMemory::write(const Forward& f, const MixerTensors& mixer) const {
  const StateView& state = f.state;
  // With evict, memory gets the tokens that the cache of W tokens will no longer have: of its own entries and the
  // segment's, all but the last W.
  const bool evicts = config_.write == KnnWrite::evict;
  const int64_t max_carried = evicts ? mixer.max_carried : 0;
  const int64_t stride = config_.stride;
  const std::vector<int64_t> none(static_cast<size_t>(state.rows()), 0);
  std::vector<int64_t> first = none, count = none, last = none, one = none;
  const std::vector<Segment> segments = state.segments();
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    if (!segment.last) continue;
    const auto row = static_cast<size_t>(segment.row);
    const int64_t cached = evicts ? mixer.carried_length[s] : 0;
    const int64_t leaving = cached + segment.count - max_carried;
    // Every stride-th token of the document enters, however the document is cut.
    const int64_t position = f.batch.position[static_cast<size_t>(f.batch.at(segment.row, segment.begin))] - cached;
    const int64_t skipped = stride - 1 - ((position % stride) + stride) % stride;
    first[row] = max_carried + segment.begin - cached + skipped;
    count[row] = leaving > skipped ? (leaving - skipped - 1) / stride + 1 : 0;
    last[row] = segment.begin + segment.count - 1;
    one[row] = 1;
  }
  const auto append = [&](LogId log, const Tensor& values) { state.append(log, values, first, count, stride); };
  if (evicts) {
    const auto [keys, values] = mixer.carried();
    const auto joined = [&](const Tensor& older, const Tensor& newer) {
      const Tensor both = Tensor::empty({newer.dim(0), max_carried + newer.dim(1), newer.dim(2), newer.dim(3)},
                                        newer.dtype(), newer.device());
      ops::copy(both.slice(1, 0, max_carried), older);
      ops::copy(both.slice(1, max_carried, max_carried + newer.dim(1)), newer);
      return both;
    };
    store_vectors(state, keys_, joined(keys, mixer.k.value()), append);
    store_vectors(state, values_, joined(values, mixer.v.value()), append);
  } else {
    store_vectors(state, keys_, mixer.k.value(), append);
    store_vectors(state, values_, mixer.v.value(), append);
    if (inputs_.defined()) append(inputs_, mixer.z.value());
  }
  if (probe_inputs_.defined() && f.training) {
    state.append(probe_inputs_, mixer.z.value(), last, one);
    state.append(probe_keys_, mixer.k.value(), last, one);
  }
  return count;
}

// The entries whose turn is longest ago are the oldest in order of their ages: a pointer that goes round memory. Where
// it stands follows from the ages: behind the entries made last. Entries that this step's appends drop are left out.
void KnnMemory::refresh(const Forward& f, const MixerTensors& mixer, const std::vector<int64_t>& appended) const {
  const StateView& state = f.state;
  const std::vector<int64_t> lengths = state.lengths(entries_);
  std::vector<int64_t> first, count;
  int64_t max_count = 0;
  for (int64_t row = 0; row < state.rows(); ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    const int64_t dropped = length + appended[static_cast<size_t>(row)] - config_.carry.length;
    const auto refreshed = static_cast<int64_t>(std::ceil(config_.stale.refresh * static_cast<double>(length)));
    first.push_back(oldest_entry(state, row, std::clamp<int64_t>(dropped, 0, length)));
    count.push_back(std::min(refreshed, length - first.back()));
    max_count = std::max(max_count, count.back());
  }
  if (max_count == 0) return;
  const Tensor inputs = state.gather(inputs_, max_count, first, count);
  const auto [keys, values] = mixer.project(inputs);
  const auto replace = [&](LogId log, const Tensor& made) { state.replace(log, made, first, count); };
  store_vectors(state, keys_, keys, replace);
  store_vectors(state, values_, values, replace);
}

int64_t KnnMemory::oldest_entry(const StateView& state, int64_t row, int64_t from) const {
  int64_t at = 0;
  int64_t oldest = from;
  int64_t age = -1;
  for (const LogRun& run : state.ages(entries_, row)) {
    const int64_t begin = std::max(at, from);
    at += run.count;
    if (begin < at && run.step > age) {
      age = run.step;
      oldest = begin;
    }
  }
  return oldest;
}

}  // namespace quire
