// Telemetry of the kNN memory.
#include <cmath>
#include <numeric>

#include "kernels/elementwise.h"
#include "layers/memory/knn.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

// Reports the gate of each head, as a mean over tokens in the rows where it depends on them.
void KnnMemory::observe_gate(const Forward& f, const Tensor& content) const {
  const std::vector<double> biases = values_on_host(gate_.value());
  const std::vector<double> of_tokens = content.defined() ? values_on_host(content) : std::vector<double>();
  double share = 0;
  for (size_t h = 0; h < biases.size(); ++h) {
    std::vector<double> gates;
    for (size_t n = 0; n < of_tokens.size() / biases.size(); ++n) {
      if (f.batch.has_token(static_cast<int64_t>(n)))
        gates.push_back(sigmoid(biases[h] + of_tokens[n * biases.size() + h]));
    }
    const double gate = content.defined() ? mean_of(gates) : sigmoid(biases[h]);
    f.add_telemetry(name_ + ".gate." + std::to_string(h), gate);
    share += gate / static_cast<double>(biases.size());
  }
  f.add_telemetry(name_ + ".share", share);
}

void KnnMemory::observe(const Forward& f, const MixerTensors& mixer, const Tensor& index, const Shares& shares) const {
  if (gate_.defined()) observe_gate(f, shares.content);
  if (shares.joint.defined()) f.add_telemetry(name_ + ".share", mean_of(values_on_host(shares.joint)));
  double entries = 0;
  for (const int64_t length : f.state.lengths(entries_)) {
    entries += static_cast<double>(length) / static_cast<double>(f.state.rows());
  }
  f.add_telemetry(name_ + ".entries", entries);
  f.add_telemetry(name_ + ".age", mean_age(f.state, index));
  if (const std::optional<double> similar = cosine(f, mixer)) f.add_telemetry(name_ + ".cosine", *similar);
}

std::vector<double> KnnMemory::local_shares(const Forward& f, const Shares& shares) const {
  const auto heads = static_cast<size_t>(mixer_.heads);
  const auto length = static_cast<size_t>(f.batch.length);
  const auto all = static_cast<size_t>(f.batch.rows) * length * heads;
  // Added values count alike; with stop_forward the result has no local part.
  if (config_.combine == KnnCombine::add) return std::vector<double>(all, 0.5);
  if (config_.combine == KnnCombine::stop_forward) return std::vector<double>(all, 0);
  const std::vector<double> biases = gate_.defined() ? values_on_host(gate_.value()) : std::vector<double>();
  const std::vector<double> content =
      shares.content.defined() ? values_on_host(shares.content) : std::vector<double>(all, 0);
  const std::vector<double> joint = shares.joint.defined() ? values_on_host(shares.joint) : std::vector<double>();
  std::vector<double> local;
  for (size_t i = 0; i < all; ++i) {
    const size_t head = i % heads, row = i / heads / length, t = i / heads % length;
    local.push_back(1 -
                    (gate_.defined() ? sigmoid(biases[head] + content[i]) : joint[(row * heads + head) * length + t]));
  }
  return local;
}

// An entry is the token at position stride - 1, 2 stride - 1, ... of its document.
void KnnMemory::report_retrieved(const Forward& f, const MixerTensors& mixer, const Selected& selected,
                                 const Shares& shares) const {
  const std::vector<double> local = local_shares(f, shares);
  const std::vector<int32_t> entries = readable(f.state);
  const std::vector<int32_t> index = selected.index.to_vector<int32_t>();
  const std::vector<double> score = values_on_host(selected.score);
  const std::vector<double> q = values_on_host(mixer.q.value());
  const std::vector<double> scaled = values_on_host(mixer.scaled_q.value());
  const auto size = static_cast<size_t>(mixer_.head_size);
  const auto top_k = static_cast<size_t>(selected.index.dim(3));
  for (size_t query = 0; query < index.size() / top_k; ++query) {
    const auto head = static_cast<int64_t>(query) % mixer_.heads;
    const int64_t at = static_cast<int64_t>(query) / mixer_.heads;
    if (!f.batch.has_token(at)) continue;
    const int64_t row = at / f.batch.length;
    // Logits are products of the scaled query.
    const double scale =
        std::inner_product(&scaled[query * size], &scaled[query * size] + size, &q[query * size], 0.0) /
        std::inner_product(&q[query * size], &q[query * size] + size, &q[query * size], 1e-300);
    std::vector<Retrieval> reads;
    double sum = 0;
    double max_logit = -INFINITY;
    for (size_t i = query * top_k; i < (query + 1) * top_k; ++i) {
      if (index[i] >= 0) max_logit = std::max(max_logit, scale * score[i]);
    }
    for (size_t i = query * top_k; i < (query + 1) * top_k; ++i) {
      if (index[i] < 0) continue;
      const int64_t number = f.state.written(entries_, row) - entries[static_cast<size_t>(row)] + index[i];
      const int64_t position = (number + 1) * config_.stride - 1;
      reads.push_back({row, at % f.batch.length, head, position, position + 1, std::exp(scale * score[i] - max_logit),
                       local[query]});
      sum += reads.back().weight;
    }
    for (Retrieval& read : reads) {
      read.weight /= sum;
      f.add_retrieval(name_, read);
    }
  }
}

double KnnMemory::mean_age(const StateView& state, const Tensor& index) const {
  const std::vector<int32_t> found = index.to_vector<int32_t>();
  const std::vector<int32_t> entries = readable(state);
  const size_t per_row = found.size() / static_cast<size_t>(state.rows());
  double sum = 0;
  double count = 0;
  for (int64_t row = 0; row < state.rows(); ++row) {
    std::vector<double> ages;
    for (const LogRun& run : state.ages(entries_, row)) {
      ages.insert(ages.end(), static_cast<size_t>(run.count), static_cast<double>(run.step));
    }
    // Entries count from the oldest one that may be retrieved.
    const auto hidden = static_cast<int64_t>(ages.size()) - entries[static_cast<size_t>(row)];
    for (size_t i = 0; i < per_row; ++i) {
      const int32_t entry = found[static_cast<size_t>(row) * per_row + i];
      if (entry < 0) continue;
      sum += ages[static_cast<size_t>(hidden + entry)];
      ++count;
    }
  }
  return count > 0 ? sum / count : 0;
}

std::optional<double> KnnMemory::cosine(const Forward& f, const MixerTensors& mixer) const {
  if (!inputs_.defined() && config_.write == KnnWrite::never) return std::nullopt;
  const StateView& state = f.state;
  const LogId from = inputs_.defined() ? inputs_ : probe_inputs_;
  double sum = 0;
  double count = 0;
  for (int64_t row = 0; row < state.rows(); ++row) {
    const StateView one = state.block(row, row + 1);
    int64_t length = one.lengths(from.group)[0];
    const std::vector<LogRun> ages = one.ages(entries_, 0);
    if (length == 0 || ages.empty()) continue;
    // The oldest ones, which are the most stale; of probes, one a step, those of steps that memory still holds.
    const int64_t gone = inputs_.defined() ? 0 : std::max<int64_t>(0, length - ages.front().step);
    length -= gone;
    const std::vector<int64_t> first{gone};
    const std::vector<int64_t> taken{std::min(length, kProbes)};
    const Tensor stored = inputs_.defined() ? one.gather(keys_.log, taken[0], first, taken)
                                            : one.gather(probe_keys_, taken[0], first, taken);
    Tensor wide = stored;
    if (ops::has_scale(stored.dtype())) {
      const Tensor scale = one.gather(keys_.scale, taken[0], first, taken);
      wide = Tensor::empty(stored.shape(), mixer.k.value().dtype(), stored.device());
      ops::dequantize_vectors(wide.reshape({scale.numel(), mixer_.head_size}),
                              stored.reshape({scale.numel(), mixer_.head_size}), scale.reshape({scale.numel()}));
    }
    const std::vector<double> before = values_on_host(wide);
    const std::vector<double> now = values_on_host(mixer.project(one.gather(from, taken[0], first, taken)).first);
    const auto size = static_cast<size_t>(mixer_.head_size);
    for (size_t i = 0; i < now.size(); i += size) {
      double product = 0;
      double a = 0;
      double b = 0;
      for (size_t d = 0; d < size; ++d) {
        product += now[i + d] * before[i + d];
        a += now[i + d] * now[i + d];
        b += before[i + d] * before[i + d];
      }
      if (a == 0 || b == 0) continue;
      sum += product / std::sqrt(a * b);
      ++count;
    }
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

}  // namespace quire
